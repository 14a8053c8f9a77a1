%% A filter of the log: what a crash says of where it was and why, without what it had in its hands.
%%
%% OTP tells of a crash with the process' state, its last message, what waits in its mailbox, and
%% the arguments of the function that failed. In Halley these have events, tokens and keys in them,
%% and all of that is binaries everywhere. So in reports of crashes each binary is shown by its size
%% alone: whatever process dies, no data gets into the log, and nobody has to remember it.
%%
%% It looks at what OTP reports; a message that Halley's own code writes says what it wants to say.
%% Where that is about a crash, the code calls `without/1' itself.
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
