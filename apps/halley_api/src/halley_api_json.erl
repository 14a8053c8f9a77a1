%% JSON as the API needs it: an object's members, decoded by jiffy, or as they were written.
%%
%% An event's data must reach its followers as the publisher wrote it: `1.10' stays `1.10', a number
%% of thirty digits keeps them all, members keep their order, escapes stay escapes. Decoding and
%% encoding again would lose some of that, and time. So `texts/3' makes one scan by
%% `halley_json_text', and gives the text of each member's value; `value/1' decodes one.
%%
%% A text that the scan refuses, or is unsure of, is decoded by jiffy, whose errors say more. jiffy
%% accepts some texts that aren't numbers (`1e+'): the scan has the last word.
%%
%% Invariants: each text is JSON to the letter of RFC 8259, and can be decoded. `one_line/1' gives
%% it on one line without control characters, as DELIVER needs (link.md 7.1).
-module(halley_api_json).

-export([object/1, texts/3, members/3, bytes/1, value/1, one_line/1, string/1]).
-export_type([members/0]).

-include("halley_api_limits.hrl").

%% The white space of JSON that has no place in a line.
-define(CONTROL_SPACE, [<<"\n">>, <<"\t">>, <<"\r">>]).

%% An object as jiffy gives it: order and duplicates are kept.
-type members() :: [{binary(), jiffy:json_value()}].

%% Decodes a JSON object. The error says what is wrong and at which byte, counted from 1.
-spec object(binary()) -> {ok, members()} | {error, iodata()}.
object(Text) ->
    case byte_size(Text) =< ?NUMBER_DIGITS_MAX orelse digits_fit(Text, 0) of
        true -> decode(Text);
        false ->
            {error, ["a number has more than ", integer_to_list(?NUMBER_DIGITS_MAX), " digits"]}
    end.

decode(Text) ->
    try jiffy:decode(Text) of
        {Members} -> {ok, Members};
        Other -> {error, ["a JSON object was expected, not ", kind(Other)]}
    catch
        error:{Byte, Reason} when is_integer(Byte) ->
            {error, not_valid(Byte, Reason)};
        error:{range, _} ->
            {error, "a number is too large for a 64-bit float"};
        _:_ ->
            {error, "the text is not valid JSON"}
    end.

not_valid(Byte, Reason) ->
    ["the JSON is not valid at byte ", integer_to_list(Byte), ": ", explain(Reason)].

kind(Value) when is_list(Value) -> "an array";
kind(Value) when is_binary(Value) -> "a string";
kind(Value) when is_number(Value) -> "a number";
kind(Value) -> atom_to_list(Value).

explain(truncated_json) -> "the text ends before the JSON does";
explain(invalid_trailing_data) -> "something follows the end of the JSON";
explain(invalid_string) ->
    "a string holds a control character, a bad escape, half a surrogate pair or what is not UTF-8";
explain(invalid_number) -> "a number is malformed";
explain(invalid_literal) -> "only true, false and null are words";
explain(invalid_json) -> "this is not expected here";
explain(Reason) -> atom_to_list(Reason).

%% Strings are stepped over as jiffy does, so up to the first error both see the same numbers.
digits_fit(<<$", Rest/binary>>, _) -> digits_fit_string(Rest);
digits_fit(<<C, Rest/binary>>, N) when C >= $0, C =< $9, N < ?NUMBER_DIGITS_MAX ->
    digits_fit(Rest, N + 1);
digits_fit(<<C, _/binary>>, _) when C >= $0, C =< $9 -> false;
digits_fit(<<_, Rest/binary>>, _) -> digits_fit(Rest, 0);
digits_fit(<<>>, _) -> true.

digits_fit_string(<<$", Rest/binary>>) -> digits_fit(Rest, 0);
digits_fit_string(<<$\\, _, Rest/binary>>) -> digits_fit_string(Rest);
digits_fit_string(<<_, Rest/binary>>) -> digits_fit_string(Rest);
digits_fit_string(<<>>) -> true.

%% The members of an object, in order: name, and text of the value. That of the member `Bounded' is
%% nested `DepthMax' deep at most: a number or a string has the depth 0.
-spec texts(binary(), Bounded :: binary(), DepthMax :: pos_integer()) ->
    {ok, [{Name :: binary(), Value :: binary()}]} | {error, too_deep | iodata()}.
texts(Text, Bounded, DepthMax) ->
    case scan(Text, {Bounded, DepthMax, fun halley_json_text:skip_decodable/2}) of
        {ok, Members} -> {ok, Members};
        {error, Fault, Left} -> explained(object(Text), Fault, Left, Text, {Bounded, DepthMax})
    end.

explained({error, _} = Error, _, _, _, _) ->
    Error;
explained({ok, _}, unsure, _, Text, {Bounded, DepthMax}) ->
    %% It can be decoded.
    case scan(Text, {Bounded, DepthMax, fun halley_json_text:skip/2}) of
        {ok, Members} -> {ok, Members};
        {error, Fault, Left} -> explained({ok, []}, Fault, Left, Text, {Bounded, DepthMax})
    end;
explained({ok, _}, too_deep, _, _, _) ->
    {error, too_deep};
explained({ok, _}, Fault, Left, Text, _) ->
    {error, not_valid(byte_size(Text) - Left + 1, reason(Fault))}.

%% The same of an object that comes as its members, in order: names of letters, and a text that is
%% to be the value.
-spec members([{Name :: binary(), Text :: binary()}], Bounded :: binary(),
              DepthMax :: pos_integer()) ->
    {ok, [{Name :: binary(), Value :: binary()}]} | {error, too_deep | iodata()}.
members(Members, Bounded, DepthMax) ->
    case lists:all(fun(Member) -> is_value(Member, Bounded, DepthMax) end, Members) of
        true -> {ok, Members};
        false -> texts(iolist_to_binary(together(Members)), Bounded, DepthMax)
    end.

is_value({Name, Text}, Bounded, DepthMax) ->
    Depth = case Name of Bounded -> DepthMax; _ -> byte_size(Text) + 1 end,
    halley_json_text:skip_decodable(Text, Depth) =:= {ok, <<>>}.

together(Members) ->
    [${, lists:join($,, [[$", Name, "\":", Text] || {Name, Text} <- Members]), $}].

%% How many bytes the text of such an object has.
-spec bytes([{Name :: binary(), Text :: binary()}]) -> non_neg_integer().
bytes(Members) ->
    iolist_size(together(Members)).

scan(Text, How) ->
    case skip_space(Text) of
        <<${, Rest/binary>> ->
            case skip_space(Rest) of
                <<$}, End/binary>> -> ended(End, []);
                Members -> scan(Members, How, [])
            end;
        Other ->
            unexpected(Other)
    end.

%% The two that every event has; any name comes by the third clause.
scan(<<"\"data\":", Value/binary>>, How, Members) ->
    member(<<"data">>, Value, How, Members);
scan(<<"\"subject\":", Value/binary>>, How, Members) ->
    member(<<"subject">>, Value, How, Members);
scan(<<$", _/binary>> = Text, {_, _, Skip} = How, Members) ->
    case Skip(Text, 1) of
        {ok, AfterName} ->
            case skip_space(AfterName) of
                <<$:, Value/binary>> ->
                    member(value(part(Text, AfterName)), Value, How, Members);
                Other -> unexpected(Other)
            end;
        {error, _, _} = Error ->
            Error
    end;
scan(Text, _, _) ->
    unexpected(Text).

member(Name, AfterColon, {Bounded, DepthMax, Skip} = How, Members) ->
    Value = skip_space(AfterColon),
    Depth = case Name of Bounded -> DepthMax; _ -> byte_size(Value) + 1 end,
    case Skip(Value, Depth) of
        {ok, Rest} -> next(skip_space(Rest), How, [{Name, part(Value, Rest)} | Members]);
        {error, _, _} = Error -> Error
    end.

next(<<$,, Rest/binary>>, How, Members) -> scan(skip_space(Rest), How, Members);
next(<<$}, Rest/binary>>, _, Members) -> ended(Rest, Members);
next(Text, _, _) -> unexpected(Text).

ended(Text, Members) ->
    case skip_space(Text) of
        <<>> -> {ok, lists:reverse(Members)};
        Rest -> unexpected(Rest)
    end.

unexpected(Text) -> {error, unexpected, byte_size(Text)}.

part(Text, Rest) -> binary_part(Text, 0, byte_size(Text) - byte_size(Rest)).

%% The value of a text that `texts/3' gave.
-spec value(binary()) -> jiffy:json_value().
value(Text) ->
    Inner = byte_size(Text) - 2,
    case Text of
        <<$", String:Inner/binary, $">> ->
            case has_escape(String) of
                false -> String;
                true -> jiffy:decode(Text)
            end;
        _ ->
            jiffy:decode(Text)
    end.

reason(truncated) -> truncated_json;
reason(unexpected) -> invalid_json;
reason(number) -> invalid_number;
reason(string) -> invalid_string;
reason(word) -> invalid_literal.

skip_space(<<C, Rest/binary>>) when C =:= $\s; C =:= $\n; C =:= $\t; C =:= $\r ->
    skip_space(Rest);
skip_space(Rest) ->
    Rest.

has_escape(<<$\\, _/binary>>) -> true;
has_escape(<<_, Rest/binary>>) -> has_escape(Rest);
has_escape(<<>>) -> false.

%% A value's text on one line. There are no control characters inside strings, so what is found here
%% stands between tokens. One search for each character: a single byte is found by memchr, a set of
%% them is not.
-spec one_line(binary()) -> binary().
one_line(Value) ->
    case lists:any(fun(C) -> binary:match(Value, C) =/= nomatch end, ?CONTROL_SPACE) of
        false -> Value;
        true -> binary:replace(Value, ?CONTROL_SPACE, <<>>, [global])
    end.

%% A string as JSON text; what isn't UTF-8 in it is replaced.
-spec string(iodata()) -> iodata().
string(Text) ->
    jiffy:encode(iolist_to_binary(Text), [force_utf8]).
