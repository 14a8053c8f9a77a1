%% A filter of the log: a crash is reported with its place and reason, but without data.
%%
%% OTP reports a crash with the process' state, its last message, its mailbox, and the arguments of
%% the function that failed. In Halley these contain events, tokens and keys, all of them binaries.
%% So in reports of crashes each binary is shown by its size alone: whatever process dies, no data
%% gets into the log.
%%
%% It filters only OTP's reports. Halley's own messages aren't changed; one about a crash calls
%% `without/1' itself.
-module(halley_log_data).

-export([filter/2, without/1]).

%% To be used as a handler's filter.
-spec filter(logger:log_event(), term()) -> logger:filter_return().
filter(#{msg := {report, #{label := _} = Report}} = Event, _) ->
    Event#{msg := {report, without(Report)}};
filter(#{msg := {Format, Arguments}, meta := #{error_logger := #{emulator := true}}} = Event, _)
        when is_list(Arguments) ->
    Event#{msg := {Format, without(Arguments)}};
filter(_, _) ->
    ignore.

%% The term with `{bytes, Size}' in the place of each binary.
-spec without(term()) -> term().
without(Bits) when is_bitstring(Bits) -> {bytes, byte_size(Bits)};
without([Head | Tail]) -> [without(Head) | without(Tail)];
without(Tuple) when is_tuple(Tuple) -> list_to_tuple(without(tuple_to_list(Tuple)));
without(Map) when is_map(Map) -> maps:from_list(without(maps:to_list(Map)));
without(Term) -> Term.
