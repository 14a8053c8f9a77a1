%% An engine for tests: a process with the chain and the tables in its memory, which several brains
%% share. It keeps the promises of `halley_log_engine', and fails on demand:
%%
%%   `away/1', `back/1'   no call is answered until then
%%   `fail_over/2'  the last rows are lost, as by an asynchronous standby, and a new stretch begins
%%   `advance/2'    its clock
%%
%% Unknown outcomes and lies are those of the simulator's engine (`halley_cluster_model').
-module(halley_cluster_fake_engine).
-behaviour(halley_log_engine).
-behaviour(gen_server).

-export([start/0, stop/1, settings/1, away/1, back/1, fail_over/2, advance/2]).
-export([open/1, close/1, append/4, read/3, snapshot/2, trim/2, take/5, give/4, brains/2,
         position/2, save_position/3]).
-export([init/1, handle_call/3, handle_cast/2]).

%% `tables' as they were after each row: `rows' has the newest first.
-record(fake, {rows = [], base = 0, floor = 0, epochs = [], stretch = 1, handles = #{},
               is_away = false, clock = 1000000, roles = #{}, brains = #{},
               positions = #{}}).
-record(tables, {follows = #{}, kept = #{}, keys = #{}}).

start() -> gen_server:start_link(?MODULE, none, []).

stop(Pid) -> gen_server:stop(Pid).

settings(Pid) -> #{fake => Pid}.

away(Pid) -> gen_server:call(Pid, {away, true}).

back(Pid) -> gen_server:call(Pid, {away, false}).

%% Without its last `Count' rows.
fail_over(Pid, Count) -> gen_server:call(Pid, {fail_over, Count}).

advance(Pid, Ms) -> gen_server:call(Pid, {advance, Ms}).

open(#{fake := Pid}) ->
    case gen_server:call(Pid, open) of
        {ok, Ref, Opened} -> {ok, {Pid, Ref}, Opened};
        {error, _} = Error -> Error
    end.

close({Pid, Ref}) -> gen_server:call(Pid, {close, Ref}).

append(Prev, Token, Group, Handle) -> on(Handle, {append, Prev, Token, Group}).

read(After, MaxBytes, Handle) -> on(Handle, {read, After, MaxBytes}).

snapshot(Fun, Handle) ->
    case on(Handle, snapshot) of
        {ok, At, Parts} ->
            lists:foreach(fun(Part) -> ok = Fun(Part) end, Parts),
            {ok, At};
        {error, _} = Error -> Error
    end.

trim(OlderThan, Handle) -> on(Handle, {trim, OlderThan}).

take(Role, Brain, Term, TtlMs, Handle) -> on(Handle, {take, Role, Brain, Term, TtlMs}).

give(Role, Brain, Term, Handle) -> on(Handle, {give, Role, Brain, Term}).

brains(Brain, Handle) -> on(Handle, {brains, Brain}).

position(Consumer, Handle) -> on(Handle, {position, Consumer}).

save_position(Consumer, Position, Handle) -> on(Handle, {save_position, Consumer, Position}).

on({Pid, Ref}, Request) -> gen_server:call(Pid, {on, Ref, Request}).

%% --- the process --------------------------------------------------------------------------------

init(none) -> {ok, #fake{}}.

handle_cast(_, Fake) -> {noreply, Fake}.

handle_call({away, IsAway}, _, Fake) ->
    {reply, ok, Fake#fake{is_away = IsAway, handles = #{}}};
handle_call({fail_over, Count}, _, #fake{rows = Rows, stretch = Stretch} = Fake) ->
    {reply, ok, Fake#fake{rows = lists:nthtail(Count, Rows), stretch = Stretch + 1}};
handle_call({advance, Ms}, _, #fake{clock = Clock} = Fake) ->
    {reply, ok, Fake#fake{clock = Clock + Ms}};
handle_call(open, _, #fake{is_away = true} = Fake) ->
    {reply, {error, away}, Fake};
handle_call(open, _, Fake) ->
    #fake{handles = Handles, epochs = [#{n := N} | _] = Epochs} = Begun = begun(Fake),
    Ref = make_ref(),
    {reply, {ok, Ref, #{last => last(Begun), floor => Begun#fake.floor, at => Begun#fake.clock,
                        epochs => [maps:remove(stretch, Epoch) || Epoch <- Epochs]}},
     Begun#fake{handles = Handles#{Ref => N}}};
handle_call({close, Ref}, _, #fake{handles = Handles} = Fake) ->
    {reply, ok, Fake#fake{handles = maps:remove(Ref, Handles)}};
handle_call({on, Ref, Request}, _, #fake{handles = Handles} = Fake) ->
    case Handles of
        #{Ref := N} -> called(Request, is_current(N, Fake), Ref, Fake);
        #{} -> {reply, {error, away}, Fake}
    end.

begun(#fake{epochs = [#{stretch := Stretch} | _], stretch = Stretch} = Fake) -> Fake;
begun(#fake{epochs = Epochs, stretch = Stretch} = Fake) ->
    Fake#fake{epochs = [#{n => length(Epochs) + 1, store => rand:uniform(16#FFFFFFFF),
                          'after' => last(Fake), stretch => Stretch} | Epochs]}.

is_current(N, #fake{epochs = [#{n := Newest, stretch := Its} | _], stretch = Stretch}) ->
    N =:= Newest andalso Its =:= Stretch.

last(#fake{rows = [{#{last := Last}, _} | _]}) -> Last;
last(#fake{rows = [], base = Base}) -> Base.

lost(Ref, #fake{handles = Handles} = Fake) -> Fake#fake{handles = maps:remove(Ref, Handles)}.

called({append, _, _, _}, false, Ref, Fake) -> {reply, new_stretch, lost(Ref, Fake)};
called({append, Prev, Token, Group}, true, _, Fake) ->
    {Answer, After} = compare(Prev, Token, Group, Fake),
    {reply, Answer, After};
called({read, _, _}, false, Ref, Fake) -> {reply, {error, away}, lost(Ref, Fake)};
called({read, After, MaxBytes}, true, _, Fake) -> read_after(After, MaxBytes, Fake);
called(snapshot, false, Ref, Fake) -> {reply, {error, away}, lost(Ref, Fake)};
called(snapshot, true, _, Fake) ->
    #tables{follows = Follows, kept = Kept, keys = Keys} = tables(Fake),
    {reply, {ok, last(Fake), [{follows, maps:keys(Follows)},
                              {kept, [{Subject, Seq, At, Event}
                                      || {Subject, {Seq, At, Event}} <- maps:to_list(Kept)]},
                              {keys, maps:to_list(Keys)}]}, Fake};
called({trim, OlderThan}, _, _, #fake{rows = Rows, floor = Floor} = Fake) ->
    Old = lists:takewhile(fun({#{at := At}, _}) -> At < OlderThan end, lists:reverse(Rows)),
    %% The newest stays.
    Count = min(length(Old), max(0, length(Rows) - 1)),
    Left = lists:sublist(Rows, length(Rows) - Count),
    Floor1 = case lists:reverse(Left) of
        [{#{prev := Prev}, _} | _] -> Prev;
        [] -> Floor
    end,
    {reply, {ok, Floor1}, Fake#fake{rows = Left, floor = Floor1}};
called({take, Role, Brain, Term, TtlMs}, _, _, #fake{roles = Roles, clock = Clock} = Fake) ->
    case maps:get(Role, Roles, {<<>>, 0, 0}) of
        {Brain, Term, _} -> held(Role, Brain, Term, TtlMs, Fake);
        {_, Its, Until} when Until =< Clock -> held(Role, Brain, Its + 1, TtlMs, Fake);
        {Other, Its, _} -> {reply, {other, Other, Its}, Fake}
    end;
called({give, Role, Brain, Term}, _, _, #fake{roles = Roles} = Fake) ->
    case Roles of
        #{Role := {Brain, Term, _}} ->
            {reply, ok, Fake#fake{roles = Roles#{Role := {<<>>, Term, 0}}}};
        #{} -> {reply, ok, Fake}
    end;
called({brains, #{name := Name} = Brain}, _, _, #fake{brains = Brains, clock = Clock} = Fake) ->
    All = Brains#{Name => Brain#{seen => Clock}},
    {reply, {ok, maps:values(All), Clock}, Fake#fake{brains = All}};
called({position, Consumer}, _, _, #fake{positions = Positions} = Fake) ->
    {reply, {ok, maps:get(Consumer, Positions, none)}, Fake};
called({save_position, Consumer, Position}, _, _, #fake{positions = Positions} = Fake) ->
    {reply, ok, Fake#fake{positions = Positions#{Consumer => Position}}}.

held(Role, Brain, Term, TtlMs, #fake{roles = Roles, clock = Clock} = Fake) ->
    {reply, {held, Term}, Fake#fake{roles = Roles#{Role => {Brain, Term, Clock + TtlMs}}}}.

%% --- appending and reading -----------------------------------------------------------------------

compare(Prev, Token, #{last := Last, body := Body, changes := Changes},
        #fake{rows = Rows, clock = Clock} = Fake) ->
    case last(Fake) of
        Prev ->
            At = case Rows of
                [{#{at := Before}, _} | _] -> max(Before, Clock);
                [] -> Clock
            end,
            Row = #{prev => Prev, last => Last, at => At, token => Token, body => Body},
            Tables = lists:foldl(fun(Change, Before) -> change(Change, At, Before) end,
                                 tables(Fake), Changes),
            {{ok, At}, Fake#fake{rows = [{Row, Tables} | Rows]}};
        Other -> {{conflict, Other}, Fake}
    end.

tables(#fake{rows = [{_, Tables} | _]}) -> Tables;
tables(#fake{rows = []}) -> #tables{}.

change({follow, User, Subject}, _, #tables{follows = Follows} = Tables) ->
    Tables#tables{follows = Follows#{{User, Subject} => true}};
change({unfollow, User, Subject}, _, #tables{follows = Follows} = Tables) ->
    Tables#tables{follows = maps:remove({User, Subject}, Follows)};
change({forget, Id}, _, #tables{follows = Follows} = Tables) ->
    Tables#tables{follows = maps:filter(fun({User, Subject}, true) ->
        User =/= Id andalso Subject =/= Id
    end, Follows)};
change({keep, Subject, Seq, Event}, At, #tables{kept = Kept} = Tables) ->
    Tables#tables{kept = Kept#{Subject => {Seq, At, Event}}};
change({clear, Subject}, _, #tables{kept = Kept} = Tables) ->
    Tables#tables{kept = maps:remove(Subject, Kept)};
change({key, Id, removed}, _, #tables{keys = Keys} = Tables) ->
    Tables#tables{keys = maps:remove(Id, Keys)};
change({key, Id, Record}, _, #tables{keys = Keys} = Tables) ->
    Tables#tables{keys = Keys#{Id => Record}}.

read_after(After, MaxBytes, #fake{rows = Rows, floor = Floor} = Fake) ->
    All = [Row || {Row, _} <- lists:reverse(Rows)],
    case [Row || #{prev := Prev} = Row <- All, Prev >= After] of
        _ when After < Floor -> {reply, too_old, Fake};
        [#{prev := After} | _] = Found -> {reply, {ok, bounded(Found, MaxBytes)}, Fake};
        [] ->
            case last(Fake) of
                After -> {reply, {ok, []}, Fake};
                Last when Last > After -> {reply, too_old, Fake};
                _ -> {reply, ahead, begun(again(Fake))}
            end;
        _ -> {reply, too_old, Fake}
    end.

%% A row that a brain has was committed: the chain has lost its end, also in the same stretch.
again(#fake{stretch = Stretch} = Fake) -> Fake#fake{stretch = Stretch + 1}.

bounded([], _) -> [];
bounded([#{body := Body} = Row | Rows], Bytes) when byte_size(Body) < Bytes ->
    [Row | bounded(Rows, Bytes - byte_size(Body))];
bounded([Row | _], _) -> [Row].
