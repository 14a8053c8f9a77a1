%% JSON as the API needs it: an object's members by jiffy, and one member's text as it was written.
%%
%% An event's data must reach its followers as the publisher wrote it: `1.10' stays `1.10', a number
%% of thirty digits keeps them all, members keep their order, escapes stay escapes. Decoding and
%% encoding again would lose some of that, so `object/1' has jiffy decode the text and `cut/3' cuts
%% the member out. jiffy accepts some texts that aren't numbers (`1e+'), so the part that is cut out
%% is judged once more on the way, by `halley_json_text', and how deep it is nested as well.
%%
%% Invariants: `cut/3' is only for a text that `object/1' accepted. Its result is JSON to the letter
%% of RFC 8259, on one line without control characters, as DELIVER needs (link.md 7.1).
-module(halley_api_json).

-export([object/1, cut/3, string/1]).
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

%% The text of an object's Nth member's value, on one line, if it is nested `DepthMax' deep at most:
%% a number or a string has the depth 0.
-spec cut(binary(), pos_integer(), DepthMax :: pos_integer()) ->
    {ok, binary()} | {error, too_deep | iodata()}.
cut(Text, N, DepthMax) ->
    <<${, Members/binary>> = skip_space(Text),
    case nth_value(N, Members, DepthMax) of
        {ok, Value, Bytes} -> {ok, one_line(binary_part(Value, 0, Bytes))};
        {error, too_deep, _} -> {error, too_deep};
        {error, Fault, Left} -> {error, not_valid(byte_size(Text) - Left + 1, reason(Fault))}
    end.

nth_value(N, Members, DepthMax) ->
    {ok, AfterName} = halley_json_text:skip(Members, DepthMax),
    <<$:, AfterColon/binary>> = skip_space(AfterName),
    Value = skip_space(AfterColon),
    case halley_json_text:skip(Value, DepthMax) of
        {ok, Rest} when N =:= 1 ->
            {ok, Value, byte_size(Value) - byte_size(Rest)};
        {ok, Rest} ->
            case skip_space(Rest) of
                <<$,, Next/binary>> -> nth_value(N - 1, Next, DepthMax);
                Left -> {error, unexpected, byte_size(Left)}
            end;
        {error, _, _} = Error ->
            Error
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

%% There are no control characters inside strings, so what is found here stands between tokens.
%% One search for each character: a single byte is found by memchr, a set of them is not.
one_line(Value) ->
    case lists:any(fun(C) -> binary:match(Value, C) =/= nomatch end, ?CONTROL_SPACE) of
        false -> Value;
        true -> binary:replace(Value, ?CONTROL_SPACE, <<>>, [global])
    end.

%% A string as JSON text; what isn't UTF-8 in it is replaced.
-spec string(iodata()) -> iodata().
string(Text) ->
    jiffy:encode(iolist_to_binary(Text), [force_utf8]).
