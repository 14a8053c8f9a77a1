%% Hooks' view of the brain: the publisher of an event, and users and subjects that have their
%% first session or lost their last; and in the other direction, whether a user may connect
%% (docs/internals/hooks.md).
%%
%% Nothing is recorded unless hooks are configured; then each place that knows does one look at a
%% persistent term, and no more. `halley_hooks' turns it on before an edge is linked, and reads.
%%
%% Changes are a set, not a queue: a row for each user or subject that changed since it was read
%% last, and whether it came at all meanwhile. So a thousand changes of one user are one row, and
%% the rows are bounded by `ids_max' and `subscriptions_max'. When users came and went is in
%% `halley_hooked_moves', where events are judged by that. A row is written after its change is
%% visible: a process that takes a row and looks then sees the change, or another row comes. Taken
%% rows stay in a second table until their hooks were sent (`told/0'), so that the process that
%% takes them may be killed.
-module(halley_hooked).

-export([on/1, off/0, is_on/1, came/1, left/1, take/1, told/0, put_back/0]).
-export([judge/1, is_judged/0, ask/2]).
-export_type([key/0, change/0, judgement/0, judge/0]).

-define(TAKEN, halley_hooked_taken).

-type what() :: published | changes | moves.
%% `all': whatever was told may have changed.
-type key() :: {user, halley_id:user_number()} | {subject, halley_id:id()} | all.
%% `came': a first session came, which may have ended again. `left': the last one ended.
-type change() :: came | left.
%% Whether a user may open a session; if not, what its client is told.
-type judgement() :: allow
                   | {refuse, Status :: 400..599, RetryAfterS :: non_neg_integer(),
                      Code :: binary(), Message :: binary()}.
%% `asked': the judgement comes as `{connect_judged, Tag, judgement()}' to the process.
-type judge() :: fun((halley_id:id(), {pid(), Tag :: term()}) -> judgement() | asked).

%% The caller owns the table of changes.
-spec on([published | changes
          | {moves, {halley_hooked_moves:id_of(), halley_hooked_moves:drawn(),
                     halley_hooked_moves:max()}}]) -> ok.
on(Whats) ->
    _ = [ets:new(Table, [public, named_table, set, {write_concurrency, true}])
         || Table <- [?MODULE, ?TAKEN], ets:whereis(Table) =:= undefined],
    _ = [ok = halley_hooked_moves:on(Asked) || {moves, Asked} <- Whats],
    persistent_term:put(?MODULE, maps:from_list([case What of
                                                     {moves, _} -> {moves, true};
                                                     _ -> {What, true}
                                                 end || What <- Whats])).

-spec off() -> ok.
off() ->
    _ = persistent_term:erase(?MODULE),
    ok.

-spec is_on(what()) -> boolean().
is_on(What) ->
    is_map_key(What, persistent_term:get(?MODULE, #{})).

-spec came(key()) -> ok.
came(Key) ->
    is_on(changes) andalso written(fun() -> ets:insert(?MODULE, {Key, came}) end),
    ok.

%% Of one that came and left since it was read, the row says that it came.
-spec left(key()) -> ok.
left(Key) ->
    is_on(changes) andalso written(fun() -> ets:insert_new(?MODULE, {Key, left}) end),
    ok.

%% Without its table nobody reads any more.
written(Write) ->
    try Write() catch error:badarg -> false end.

%% At most so many changes, each given once. Of one process, which says what became of them.
-spec take(pos_integer()) -> [{key(), change()}].
take(Max) ->
    case ets:select(?MODULE, [{'_', [], ['$_']}], Max) of
        {Rows, _} ->
            true = ets:insert(?TAKEN, Rows),
            Taken = lists:append([ets:take(?MODULE, Key) || {Key, _} <- Rows]),
            %% Some may have come that had left.
            true = ets:insert(?TAKEN, Taken),
            Taken;
        '$end_of_table' -> []
    end.

%% All that was taken was told.
-spec told() -> ok.
told() ->
    true = ets:delete_all_objects(?TAKEN),
    ok.

%% What was taken was not told, as far as anybody knows.
-spec put_back() -> ok.
put_back() ->
    lists:foreach(fun({Key, Change} = Row) ->
        written(fun() ->
            ets:insert_new(?MODULE, Row) orelse Change =:= left
                orelse ets:update_element(?MODULE, Key, {2, came})
        end)
    end, ets:tab2list(?TAKEN)),
    told().

%% Who is asked about sessions that open, if anybody is. Without one all are allowed.
-spec judge(none | judge()) -> ok.
judge(none) ->
    _ = persistent_term:erase({?MODULE, judge}),
    ok;
judge(Ask) -> persistent_term:put({?MODULE, judge}, Ask).

-spec is_judged() -> boolean().
is_judged() -> persistent_term:get({?MODULE, judge}, none) =/= none.

-spec ask(halley_id:id(), Tag :: term()) -> judgement() | asked.
ask(User, Tag) ->
    case persistent_term:get({?MODULE, judge}, none) of
        none -> allow;
        Ask -> Ask(User, {self(), Tag})
    end.
