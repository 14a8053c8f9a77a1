%% The public states of sessions: JSON that a session says of itself, seen where its user is seen to
%% be present (http.md 23).
%%
%% On the link, and among a session's subscriptions, a state is in *pieces*: the byte 2, with which
%% no id begins, the piece's number, and a part of the content, a time and the text (link.md 16). So
%% the edge sends it again, bounded and forgotten as subscriptions are.
%%
%% Here is a row {{User, Word}, AtMs, Text} for each live session that has one, written by
%% `halley_subscriptions', or deleted with its user. A user's state is the latest one of its
%% sessions: so their times go on when the clock is set back (`stamp/0').
%%
%% Invariant: a text is one line of JSON, of `session_state_bytes_max' bytes at most. In memory
%% alone. Not here: the right to set one (`halley_api_state_h'), and its receivers
%% (`halley_presence').
-module(halley_session_states).

-export([new/0, clear/0, split/1, stamp/0, pieces/2, check/1]).
-export([put/3, delete/2, forget/1]).
-export([of_user/1, of_users/1, is_any/0]).
-export_type([piece/0]).

-define(STATE, 2).
-define(PIECE_BYTES, 253).
-define(FIRST_NUMBER, 0).
%% A worker may say any time: atomics have 64 bits, and this is the year 10889.
-define(AT_MS_MAX, 1 bsl 48).
%% The latest time that any state has.
-define(LATEST, {?MODULE, latest}).

-type piece() :: <<_:16, _:_*8>>.
-type user_number() :: halley_id:user_number().

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [ordered_set, public, named_table, {read_concurrency, true}]),
    ok = persistent_term:put(?LATEST, atomics:new(1, [])),
    halley_metrics:gauges([session_states], fun() ->
        #{session_states => ets:info(?MODULE, size)}
    end).

-spec clear() -> ok.
clear() ->
    true = ets:delete_all_objects(?MODULE),
    ok.

%% --- pieces --------------------------------------------------------------------------------------

%% The pieces among a session's subjects, and the subjects.
-spec split([binary()]) -> {[piece()], [binary()]}.
split(All) ->
    lists:partition(fun(<<?STATE, _/binary>>) -> true; (_) -> false end, All).

%% When a state is said: later than all that are known.
-spec stamp() -> AtMs :: non_neg_integer().
stamp() -> stamp(persistent_term:get(?LATEST), halley_clock:wall_ms()).

stamp(Latest, NowMs) ->
    Ms = atomics:get(Latest, 1),
    AtMs = max(NowMs, Ms + 1),
    case atomics:compare_exchange(Latest, 1, Ms, AtMs) of
        ok -> AtMs;
        _ -> stamp(Latest, NowMs)
    end.

%% One that an edge says again, after a brain of before.
met(AtMs) ->
    Latest = persistent_term:get(?LATEST),
    Ms = atomics:get(Latest, 1),
    AtMs =< Ms orelse AtMs > ?AT_MS_MAX
        orelse atomics:compare_exchange(Latest, 1, Ms, AtMs) =:= ok
        orelse met(AtMs).

-spec pieces(AtMs :: non_neg_integer(), Text :: binary()) -> [piece()].
pieces(AtMs, Text) -> cut(<<AtMs:64, Text/binary>>, ?FIRST_NUMBER).

cut(<<Part:?PIECE_BYTES/binary, Rest/binary>>, N) when Rest =/= <<>> ->
    [<<?STATE, N, Part/binary>> | cut(Rest, N + 1)];
cut(Part, N) ->
    [<<?STATE, N, Part/binary>>].

%% Whether these, in order, are all of a state: what a worker says may be a lie.
-spec check([piece()]) -> boolean().
check([]) ->
    true;
check(Pieces) ->
    case lists:unzip([{N, Part} || <<_, N, Part/binary>> <- Pieces]) of
        {Numbers, Parts} when length(Numbers) =:= length(Pieces) ->
            Numbers =:= lists:seq(?FIRST_NUMBER, length(Pieces) - 1)
                andalso is_state(iolist_to_binary(Parts));
        _ ->
            false
    end.

is_state(<<_:64, Text/binary>>) ->
    byte_size(Text) =< halley_limits:get(session_state_bytes_max)
        andalso << <<C>> || <<C>> <= Text, C < $\s >> =:= <<>>
        andalso halley_json_text:skip(Text, halley_limits:get(event_data_depth_max))
                =:= {ok, <<>>};
is_state(_) ->
    false.

%% --- by who writes -------------------------------------------------------------------------------

-spec put(user_number() | nobody, halley_directory:word(), [piece()]) -> ok.
put(User, Word, [_ | _] = Pieces) when is_integer(User) ->
    <<At:64, Text/binary>> = iolist_to_binary([Part || <<_, _, Part/binary>> <- Pieces]),
    _ = met(At),
    true = ets:insert(?MODULE, {{User, Word}, At, Text}),
    halley_presence_dirty:stated(state, User);
put(_, _, _) ->
    ok.

-spec delete(user_number() | nobody, halley_directory:word()) -> ok.
delete(User, Word) ->
    case ets:take(?MODULE, {User, Word}) of
        [] -> ok;
        [_] -> halley_presence_dirty:stated(state, User)
    end.

%% Of a user that is deleted.
-spec forget(user_number()) -> ok.
forget(User) ->
    lists:foreach(fun({Word, _, _}) -> ets:delete(?MODULE, {User, Word}) end, rows(User)),
    halley_presence_dirty:stated(forgotten, User).

%% --- what is read --------------------------------------------------------------------------------

-spec of_user(user_number()) -> {ok, Text :: binary()} | none.
of_user(User) ->
    case rows(User) of
        [] ->
            none;
        Rows ->
            {_, _, Text} = lists:last(lists:keysort(2, Rows)),
            {ok, Text}
    end.

%% Of those that have one.
-spec of_users([user_number()]) -> [{user_number(), Text :: binary()}].
of_users(Users) ->
    case is_any() of
        true -> [{User, Text} || User <- Users, {ok, Text} <- [of_user(User)]];
        false -> []
    end.

-spec is_any() -> boolean().
is_any() -> ets:info(?MODULE, size) > 0.

rows(User) -> rows(User, ets:next(?MODULE, {User, -1})).

rows(User, {User, Word} = Key) ->
    case ets:lookup(?MODULE, Key) of
        [{_, At, Text}] -> [{Word, At, Text} | rows(User, ets:next(?MODULE, Key))];
        [] -> rows(User, ets:next(?MODULE, Key))
    end;
rows(_, _) ->
    [].
