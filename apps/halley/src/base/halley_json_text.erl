%% Where a JSON value ends, and whether it is one: RFC 8259 to the letter.
%%
%% A publisher's text reaches its followers as it was written, so each of their parsers has to take
%% it, and the strictest is the one that counts. `halley_api_json' finds an event's data with this
%% module, which judges each byte on the way: numbers, strings, words, and how deep arrays and
%% objects are nested, since parsers that call themselves for each level have an end of their own.
%%
%% Invariants: what is accepted matches the rule `value' of RFC 8259, 3, in UTF-8 (8.1), and nests
%% no deeper than the bound; nothing is on the heap but one element for each level. `skip/2' takes
%% half of a surrogate pair, as the RFC's grammar does (8.2). A text that `skip_decodable/2' takes
%% can be decoded, too: it has no half of a pair, no number beyond a 64-bit float, and none of so
%% many digits that decoding it would take long. It is `unsure' of some others, such as `1e100'; a
%% decoder isn't.
%%
%% It decodes nothing. Pure. `halley_jwks' asks it as well whether a JWK Set is JSON.
-module(halley_json_text).

-export([skip/2, skip_decodable/2]).
-export_type([fault/0]).

-type fault() :: truncated | unexpected | number | string | word | too_deep | unsure.
%% What comes next: an array's or an object's other values, or the colon behind a name. At the end,
%% whether the text is to be decodable.
-type stack() :: [array | object | colon | decodable].

%% With so many digits and an exponent below 100 a number is a float.
-define(SURE_DIGITS_MAX, 200).

-define(IS_SPACE(C), C =:= $\s; C =:= $\n; C =:= $\r; C =:= $\t).
-define(IS_DIGIT(C), C >= $0, C =< $9).
-define(IS_HEX(C), (C >= $0 andalso C =< $9 orelse C >= $a andalso C =< $f
                    orelse C >= $A andalso C =< $F)).

%% Gives what follows the value at the beginning of a text, white space before it aside. `Left':
%% how many bytes of the text begin with the one at fault.
-spec skip(binary(), DepthMax :: pos_integer()) ->
    {ok, Rest :: binary()} | {error, fault(), Left :: non_neg_integer()}.
skip(Text, DepthMax) ->
    value(Text, [], DepthMax).

%% The same for a text that will be decoded.
-spec skip_decodable(binary(), DepthMax :: pos_integer()) ->
    {ok, Rest :: binary()} | {error, fault(), Left :: non_neg_integer()}.
skip_decodable(Text, DepthMax) ->
    value(Text, [decodable], DepthMax).

%% `Room': how many more levels there may be.
-spec value(binary(), stack(), integer()) ->
    {ok, binary()} | {error, fault(), non_neg_integer()}.
value(<<$", Rest/binary>>, Stack, Room) -> string(Rest, Stack, Room);
value(<<C, Rest/binary>>, Stack, Room) when C >= $1, C =< $9 -> digits(Rest, Stack, Room, 1);
value(<<$0, Rest/binary>>, Stack, Room) -> whole(Rest, Stack, Room);
value(<<$-, Rest/binary>>, Stack, Room) -> negative(Rest, Stack, Room);
value(<<C, Rest/binary>>, Stack, Room) when ?IS_SPACE(C) -> value(Rest, Stack, Room);
value(<<C, _/binary>> = Text, _, 0) when C =:= ${; C =:= $[ -> fault(too_deep, Text);
value(<<${, Rest/binary>>, Stack, Room) -> object(Rest, [object | Stack], Room - 1);
value(<<$[, Rest/binary>>, Stack, Room) -> array(Rest, [array | Stack], Room - 1);
value(<<"true", Rest/binary>>, Stack, Room) -> behind(Rest, Stack, Room);
value(<<"false", Rest/binary>>, Stack, Room) -> behind(Rest, Stack, Room);
value(<<"null", Rest/binary>>, Stack, Room) -> behind(Rest, Stack, Room);
value(<<C, _/binary>> = Text, _, _) when C >= $a, C =< $z -> fault(word, Text);
value(Text, _, _) -> fault(unexpected, Text).

array(<<C, Rest/binary>>, Stack, Room) when ?IS_SPACE(C) -> array(Rest, Stack, Room);
array(<<$], Rest/binary>>, [_ | Stack], Room) -> behind(Rest, Stack, Room + 1);
array(Text, Stack, Room) -> value(Text, Stack, Room).

object(<<C, Rest/binary>>, Stack, Room) when ?IS_SPACE(C) -> object(Rest, Stack, Room);
object(<<$}, Rest/binary>>, [_ | Stack], Room) -> behind(Rest, Stack, Room + 1);
object(Text, Stack, Room) -> name(Text, Stack, Room).

name(<<$", Rest/binary>>, Stack, Room) -> string(Rest, [colon | Stack], Room);
name(<<C, Rest/binary>>, Stack, Room) when ?IS_SPACE(C) -> name(Rest, Stack, Room);
name(Text, _, _) -> fault(unexpected, Text).

behind(Rest, [], _) -> {ok, Rest};
behind(Rest, [decodable], _) -> {ok, Rest};
behind(<<$,, Rest/binary>>, [array | _] = Stack, Room) -> value(Rest, Stack, Room);
behind(<<$,, Rest/binary>>, [object | _] = Stack, Room) -> name(Rest, Stack, Room);
behind(<<$:, Rest/binary>>, [colon | Stack], Room) -> value(Rest, Stack, Room);
behind(<<$], Rest/binary>>, [array | Stack], Room) -> behind(Rest, Stack, Room + 1);
behind(<<$}, Rest/binary>>, [object | Stack], Room) -> behind(Rest, Stack, Room + 1);
behind(<<C, Rest/binary>>, Stack, Room) when ?IS_SPACE(C) -> behind(Rest, Stack, Room);
behind(Text, _, _) -> fault(unexpected, Text).

%% --- strings (7) ---------------------------------------------------------------------------------

string(<<C, Rest/binary>>, Stack, Room) when C >= $\s, C < 128, C =/= $", C =/= $\\ ->
    string(Rest, Stack, Room);
string(<<$", Rest/binary>>, Stack, Room) -> behind(Rest, Stack, Room);
string(<<$\\, Rest/binary>>, Stack, Room) -> escape(Rest, Stack, Room);
string(<<C/utf8, Rest/binary>>, Stack, Room) when C >= 128 -> string(Rest, Stack, Room);
string(Text, _, _) -> fault(string, Text).

escape(<<C, Rest/binary>>, Stack, Room)
        when C =:= $"; C =:= $\\; C =:= $/; C =:= $b; C =:= $f; C =:= $n; C =:= $r; C =:= $t ->
    string(Rest, Stack, Room);
escape(<<$u, A, B, _, _, _/binary>> = Text, Stack, Room)
        when A =:= $d orelse A =:= $D, B >= $8 ->
    surrogate(Text, Stack, Room, is_decodable(Stack));
escape(<<$u, A, B, C, D, Rest/binary>>, Stack, Room)
        when ?IS_HEX(A), ?IS_HEX(B), ?IS_HEX(C), ?IS_HEX(D) ->
    string(Rest, Stack, Room);
escape(Text, _, _) -> fault(string, Text).

%% The high half, and then the low one.
surrogate(<<$u, _, B, C, D, $\\, $u, E, F, G, H, Rest/binary>>, Stack, Room, true)
        when B =:= $8 orelse B =:= $9 orelse B =:= $a orelse B =:= $b orelse B =:= $A
                 orelse B =:= $B,
             E =:= $d orelse E =:= $D, F >= $c andalso F =< $f orelse F >= $C andalso F =< $F,
             ?IS_HEX(C), ?IS_HEX(D), ?IS_HEX(G), ?IS_HEX(H) ->
    string(Rest, Stack, Room);
surrogate(<<$u, _, B, C, D, Rest/binary>>, Stack, Room, false)
        when ?IS_HEX(B), ?IS_HEX(C), ?IS_HEX(D) ->
    string(Rest, Stack, Room);
surrogate(Text, _, _, _) -> fault(string, Text).

is_decodable([]) -> false;
is_decodable(Stack) -> lists:last(Stack) =:= decodable.

%% --- numbers (6) ---------------------------------------------------------------------------------

negative(<<$0, Rest/binary>>, Stack, Room) -> whole(Rest, Stack, Room);
negative(<<C, Rest/binary>>, Stack, Room) when ?IS_DIGIT(C) -> digits(Rest, Stack, Room, 1);
negative(Text, _, _) -> fault(number, Text).

digits(<<C, Rest/binary>>, Stack, Room, N) when ?IS_DIGIT(C) -> digits(Rest, Stack, Room, N + 1);
digits(Text, Stack, Room, N) when N =< ?SURE_DIGITS_MAX -> whole(Text, Stack, Room);
digits(Text, Stack, Room, _) ->
    case is_decodable(Stack) of
        true -> fault(unsure, Text);
        false -> whole(Text, Stack, Room)
    end.

%% Behind the whole part; that `01' is no number shows in the digit.
whole(<<$., C, Rest/binary>>, Stack, Room) when ?IS_DIGIT(C) -> fraction(Rest, Stack, Room, 1);
whole(<<$., Rest/binary>>, _, _) -> fault(number, Rest);
whole(<<C, _/binary>> = Text, _, _) when ?IS_DIGIT(C) -> fault(number, Text);
whole(Text, Stack, Room) -> exponent(Text, Stack, Room).

fraction(<<C, Rest/binary>>, Stack, Room, N) when ?IS_DIGIT(C) ->
    fraction(Rest, Stack, Room, N + 1);
fraction(Text, Stack, Room, N) when N =< ?SURE_DIGITS_MAX -> exponent(Text, Stack, Room);
fraction(Text, Stack, Room, _) ->
    case is_decodable(Stack) of
        true -> fault(unsure, Text);
        false -> exponent(Text, Stack, Room)
    end.

exponent(<<E, Sign, C, Rest/binary>>, Stack, Room)
        when E =:= $e orelse E =:= $E, Sign =:= $+ orelse Sign =:= $-, ?IS_DIGIT(C) ->
    power(Rest, Stack, Room, 1);
exponent(<<E, C, Rest/binary>>, Stack, Room) when E =:= $e orelse E =:= $E, ?IS_DIGIT(C) ->
    power(Rest, Stack, Room, 1);
exponent(<<E, Rest/binary>>, _, _) when E =:= $e; E =:= $E -> fault(number, Rest);
exponent(Text, Stack, Room) -> behind(Text, Stack, Room).

power(<<C, Rest/binary>>, Stack, Room, N) when ?IS_DIGIT(C) -> power(Rest, Stack, Room, N + 1);
power(Text, Stack, Room, N) when N =< 2 -> behind(Text, Stack, Room);
power(Text, Stack, Room, _) ->
    case is_decodable(Stack) of
        true -> fault(unsure, Text);
        false -> behind(Text, Stack, Room)
    end.

-spec fault(fault(), binary()) -> {error, fault(), non_neg_integer()}.
fault(_, <<>>) -> {error, truncated, 0};
fault(Fault, Text) -> {error, Fault, byte_size(Text)}.
