%% The proposals that this brain appends: those that wait, and the group that is being appended.
%%
%% One group at a time. It keeps its token and its place after `prev' until a row is applied that
%% has that `prev': if the row has the token, the group is in the log; otherwise its proposals wait
%% again, in front. So a group that was sent twice, by two handles, is one row: the key admits one.
%%
%%   none ──form──► claiming ──► ready ──request──► calling ──ok, or its row is read──► none
%%                 (chosen ids)    ▲                  │
%%                                 └── read once ── blocked (conflict)
%%                                 └── unknown, or the handle is gone: attempted
%%
%% Proposals of other brains are bounded here, and dropped when this brain stops ordering: their
%% brains have them still, and send them to the next orderer.
%%
%% Invariants: a token is at most once among what waits and what the group has. A group that may
%% have reached the engine is never changed.
%%
%% Pure.
-module(halley_cluster_orderer).

-export([new/1, admit/4, restart/2, remove/2, form/4, claimed/3, request/3, row/3]).
-export([interrupted/1, refused/1, conflict/1, unblock/1, forget_group/1, stage/1, info/1]).
-export_type([orderer/0, from/0, stage/0]).

-record(entry, {
    token :: halley_log_engine:token(),
    from :: from(),
    proposal :: halley_cluster_records:proposal()
}).
-record(group, {
    token :: halley_log_engine:token(),
    prev :: halley_cursor:seq(),
    entries :: [#entry{}],
    stage :: claiming | ready | calling | blocked,
    attempted = false :: boolean()            % it may be in the log, now or later
}).
-record(orderer, {
    bounds :: bounds(),
    queue = queue:new() :: queue:queue(halley_log_engine:token()),
    %% What waits, and what the group has.
    entries = #{} :: #{halley_log_engine:token() => {waiting | grouped, #entry{}}},
    records = 0 :: non_neg_integer(),         % of other brains
    bytes = 0 :: non_neg_integer(),
    group = none :: none | #group{}
}).
-opaque orderer() :: #orderer{}.
-type from() :: own | Brain :: binary().
-type stage() :: none | claiming | ready | calling | blocked.
-type bounds() :: #{queue_records := pos_integer(), queue_bytes := pos_integer(),
                    group_records := pos_integer(), group_bytes := pos_integer()}.

-spec new(bounds()) -> orderer().
new(Bounds) ->
    #orderer{bounds = Bounds}.

%% Lets a proposal wait, which isn't in the log. `overloaded': as much waits already as may.
-spec admit(halley_log_engine:token(), from(), halley_cluster_records:proposal(), orderer()) ->
    {ok, orderer()} | overloaded.
admit(Token, _, _, #orderer{entries = Entries} = O) when is_map_key(Token, Entries) ->
    {ok, O};
admit(Token, From, Proposal, O) ->
    Entry = #entry{token = Token, from = From, proposal = Proposal},
    Counted = count(1, Entry, O),
    case fits(Counted) of
        true -> {ok, enter(Entry, Counted)};
        false -> overloaded
    end.

enter(#entry{token = Token} = Entry, #orderer{queue = Queue, entries = Entries} = O) ->
    O#orderer{queue = queue:in(Token, Queue), entries = Entries#{Token => {waiting, Entry}}}.

fits(#orderer{records = Records, bytes = Bytes,
              bounds = #{queue_records := RecordsMax, queue_bytes := BytesMax}}) ->
    Records =< RecordsMax andalso Bytes =< BytesMax.

%% A brain's own ones are bounded where they are open.
count(_, #entry{from = own}, O) ->
    O;
count(By, #entry{proposal = #{count := Count, records := Records}}, O) ->
    O#orderer{records = O#orderer.records + By * Count,
              bytes = O#orderer.bytes + By * byte_size(Records)}.

%% The brain's part has changed: nothing waits but these, which are its own. Returns what was
%% dropped of others. The group stays.
-spec restart([{halley_log_engine:token(), halley_cluster_records:proposal()}], orderer()) ->
    {[{Brain :: binary(), [halley_log_engine:token()]}], orderer()}.
restart(Own, #orderer{entries = Entries, group = Group} = O) ->
    Foreign = [{From, Token} || {Token, {_, #entry{from = From}}} <- maps:to_list(Entries),
                                From =/= own],
    Dropped = maps:groups_from_list(fun({From, _}) -> From end, fun({_, Token}) -> Token end,
                                    Foreign),
    Empty = O#orderer{queue = queue:new(), entries = #{}, records = 0, bytes = 0},
    Grouped = group_tokens(Group),
    {maps:to_list(Dropped),
     lists:foldl(fun({Token, Proposal}, All) ->
                     Entry = #entry{token = Token, from = own, proposal = Proposal},
                     case lists:member(Token, Grouped) of
                         true -> set(Token, {grouped, Entry}, All);
                         false -> enter(Entry, All)
                     end
                 end, Empty, Own)}.

group_tokens(none) -> [];
group_tokens(#group{entries = Entries}) -> [Token || #entry{token = Token} <- Entries].

set(Token, Value, #orderer{entries = Entries} = O) ->
    O#orderer{entries = Entries#{Token => Value}}.

%% These are in the log, or not wanted any more.
-spec remove([halley_log_engine:token()], orderer()) -> orderer().
remove(Tokens, O) ->
    lists:foldl(fun(Token, #orderer{entries = Entries} = Left) ->
                    case maps:take(Token, Entries) of
                        {{_, Entry}, Rest} -> count(-1, Entry, Left#orderer{entries = Rest});
                        error -> Left
                    end
                end, O, Tokens).

%% Makes a group of what waits. `filler': make one even if nothing waits. The caller checks which of
%% the chosen ids the log has had; without any the group is ready.
-spec form(Prev :: halley_cursor:seq(), halley_log_engine:token(), filler | no_filler, orderer()) ->
    {none, orderer()} | {claim, [halley_event:id()], orderer()} | {ready, orderer()}.
form(Prev, Token, Filler, #orderer{group = none} = O) ->
    case gather(O, [], {0, 0}, #{}) of
        {[], _, Rest} when Filler =:= no_filler ->
            {none, Rest};
        {Entries, Ids, Rest} when map_size(Ids) > 0 ->
            {claim, maps:keys(Ids), group(Prev, Token, Entries, claiming, Rest)};
        {Entries, _, Rest} ->
            {ready, group(Prev, Token, Entries, ready, Rest)}
    end.

group(Prev, Token, Entries, Stage, O) ->
    O#orderer{group = #group{token = Token, prev = Prev, entries = Entries, stage = Stage}}.

gather(#orderer{queue = Queue} = O, Entries, Sizes, Ids) ->
    case queue:out(Queue) of
        {{value, Token}, Rest} ->
            case O#orderer.entries of
                #{Token := {waiting, Entry}} ->
                    gather(Token, Entry, O, Rest, {Entries, Sizes, Ids});
                _ ->
                    gather(O#orderer{queue = Rest}, Entries, Sizes, Ids)
            end;
        {empty, _} ->
            {lists:reverse(Entries), Ids, O}
    end.

gather(Token, #entry{proposal = Proposal} = Entry, O, Rest, {Entries, {Records, Bytes}, Ids}) ->
    #{group_records := RecordsMax, group_bytes := BytesMax} = O#orderer.bounds,
    #{count := Count, records := Content, ids := Chosen} = Proposal,
    Sizes = {Records + Count, Bytes + byte_size(Content)},
    IsTooMuch = element(1, Sizes) > RecordsMax orelse element(2, Sizes) > BytesMax,
    %% The second event with an id can only be judged when the first is in the history.
    IsTwice = lists:any(fun(Id) -> is_map_key(Id, Ids) end, Chosen),
    case Entries =/= [] andalso (IsTooMuch orelse IsTwice) of
        true ->
            {lists:reverse(Entries), Ids, O};
        false ->
            Next = set(Token, {grouped, Entry}, O#orderer{queue = Rest}),
            gather(Next, [Entry | Entries], Sizes, maps:merge(Ids, maps:from_keys(Chosen, true)))
    end.

%% These of the group's ids are in the log already.
-spec claimed(halley_log_engine:token(), [halley_event:id()], orderer()) -> orderer().
claimed(Token, Known, #orderer{group = #group{token = Token, stage = claiming} = Group} = O) ->
    %% An entry that isn't wanted any more may have been answered as if nothing had been done.
    Entries = [Entry#entry{proposal = without(Known, Proposal)}
               || #entry{token = Wanted, proposal = Proposal} = Entry <- Group#group.entries,
                  is_map_key(Wanted, O#orderer.entries)],
    O#orderer{group = Group#group{entries = Entries, stage = ready}};
claimed(_, _, O) ->
    O.

without(Known, #{ids := Ids} = Proposal) ->
    halley_cluster_records:without([Id || Id <- Ids, lists:member(Id, Known)], Proposal).

%% The call that appends the group, in the given epoch, and the own proposals in it.
-spec request(Epoch :: non_neg_integer(), halley_cursor:store(), orderer()) ->
    {halley_cluster_handle:request(), [halley_log_engine:token()], orderer()}.
request(Epoch, Store, #orderer{group = #group{stage = ready, token = Token, prev = Prev,
                                              entries = Entries} = Group} = O) ->
    {Last, Portions, Changes} = lists:foldl(
        fun(Entry, Sum) -> portion(Entry, Store, Sum) end, {Prev, [], []}, Entries),
    {End, All} = case Last of
        Prev -> {Prev + 1, [{Token, halley_cluster_records:filler()} | Portions]};
        _ -> {Last, Portions}
    end,
    Content = #{last => End, body => halley_cluster_records:body(Epoch, lists:reverse(All)),
                changes => lists:append(lists:reverse(Changes))},
    {{append, Prev, Token, Content}, [Own || #entry{token = Own, from = own} <- Entries],
     O#orderer{group = Group#group{stage = calling}}}.

portion(#entry{token = Token, proposal = Proposal}, Store, {Before, Portions, Changes}) ->
    #{seqs := Seqs, changing := IsChanging, records := Records} = Proposal,
    Changed = case IsChanging of
        true -> halley_cluster_records:changes(Store, Before, Records);
        false -> []
    end,
    {Before + Seqs, [{Token, Records} | Portions], [Changed | Changes]}.

%% Its answer never came, and its handle is gone: it may be in the log now or later.
-spec interrupted(orderer()) -> orderer().
interrupted(#orderer{group = #group{stage = calling} = Group} = O) ->
    O#orderer{group = Group#group{stage = ready, attempted = true}};
interrupted(O) ->
    O.

%% The engine has done nothing. A group that was never in doubt is no group any more.
-spec refused(orderer()) -> orderer().
refused(#orderer{group = #group{stage = calling, attempted = true} = Group} = O) ->
    O#orderer{group = Group#group{stage = ready}};
refused(#orderer{group = #group{stage = calling} = Group} = O) ->
    back(Group, O);
refused(O) ->
    O.

%% Another row is in its place. Which one, a reader says.
-spec conflict(orderer()) -> orderer().
conflict(#orderer{group = #group{stage = calling} = Group} = O) ->
    O#orderer{group = Group#group{stage = blocked}};
conflict(O) ->
    O.

%% The rows that this brain has are of a chain that is gone, or will be read anew.
-spec forget_group(orderer()) -> orderer().
forget_group(#orderer{group = none} = O) -> O;
forget_group(#orderer{group = Group} = O) -> back(Group, O).

%% The table was read since.
-spec unblock(orderer()) -> orderer().
unblock(#orderer{group = #group{stage = blocked} = Group} = O) ->
    O#orderer{group = Group#group{stage = ready}};
unblock(O) ->
    O.

%% A row was applied, with these proposals.
-spec row(halley_log_engine:row(), [halley_log_engine:token()], orderer()) -> orderer().
row(#{prev := Prev, token := Token}, Tokens, O) ->
    case remove(Tokens, O) of
        #orderer{group = #group{prev = Prev, token = Token}} = Left ->
            Left#orderer{group = none};
        #orderer{group = #group{prev = GroupPrev} = Group} = Left when GroupPrev =< Prev ->
            back(Group, Left);
        Left ->
            Left
    end.

%% What is still wanted of a group waits again, in front.
back(#group{entries = Entries}, O) ->
    lists:foldr(fun(#entry{token = Token}, #orderer{queue = Queue} = Left) ->
                    case Left#orderer.entries of
                        #{Token := {grouped, AsItCame}} ->
                            set(Token, {waiting, AsItCame},
                                Left#orderer{queue = queue:in_r(Token, Queue)});
                        _ ->
                            Left
                    end
                end, O#orderer{group = none}, Entries).

-spec stage(orderer()) -> {stage(), Prev :: halley_cursor:seq() | none}.
stage(#orderer{group = none}) -> {none, none};
stage(#orderer{group = #group{stage = Stage, prev = Prev}}) -> {Stage, Prev}.

-spec info(orderer()) -> #{records := non_neg_integer(), bytes := non_neg_integer(),
                           waiting := non_neg_integer(), group := non_neg_integer()}.
info(#orderer{records = Records, bytes = Bytes, entries = Entries, group = Group}) ->
    #{records => Records, bytes => Bytes, waiting => map_size(Entries),
      group => length(group_tokens(Group))}.
