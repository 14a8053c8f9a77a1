%% Ids that publishers chose and whose events aren't written yet, and look-ups of written ones.
%%
%% A pending id is a row {Id, Shard} in ETS, its shard's claim to it. The claim ends when the event
%% is indexed, when it could not be written, or when its shard is started anew; the log's process
%% sees to all three. No id is published twice: an event is in the index before its claim ends, and
%% a shard looks into the index only after it has claimed the id.
-module(halley_history_pending_ids).

-export([new/0, claim/2, find/1, ended/1, shard_ended/1]).

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ok.

-spec claim(halley_shards:index(), binary()) ->
    fresh | busy | {known, #{id := binary(), sessions := non_neg_integer()}}.
claim(Shard, Id) ->
    case ets:insert_new(?MODULE, {Id, Shard}) of
        false -> busy;
        true ->
            case first(Id, fun(#{chosen := Chosen}) -> Chosen end) of
                none -> fresh;
                {ok, Seq} ->
                    ok = ended(Id),
                    {known, #{id => Id, sessions => sessions(Seq)}}
            end
    end.

%% Retention may have taken the entry meanwhile; the event was published all the same.
sessions(Seq) ->
    case halley_history_index:lookup(Seq) of
        {ok, #{sessions := Sessions}} -> Sessions;
        none -> 0
    end.

%% The newest event with this id.
-spec find(binary()) -> {ok, halley_history:seq()} | none.
find(Id) ->
    first(Id, fun(_) -> true end).

first(Id, Wanted) ->
    case halley_history_index:candidates(Id) of
        [] -> none;
        Seqs ->
            Reader = halley_history_reader:new(),
            {Found, Used} = first(Seqs, Id, Wanted, Reader),
            ok = halley_history_reader:close(Used),
            Found
    end.

first([], _, _, Reader) ->
    {none, Reader};
first([Seq | Seqs], Id, Wanted, Reader) ->
    case is_wanted(halley_history_index:lookup(Seq), Wanted)
        andalso halley_history_reader:read(Seq, Reader) of
        false -> first(Seqs, Id, Wanted, Reader);
        {ok, #{id := Id}, Used} -> {{ok, Seq}, Used};
        {ok, _, Used} -> first(Seqs, Id, Wanted, Used);
        {_, Used} -> first(Seqs, Id, Wanted, Used)
    end.

is_wanted(none, _) -> false;
is_wanted({ok, Position}, Wanted) -> Wanted(Position).

-spec ended(binary()) -> ok.
ended(Id) ->
    true = ets:delete(?MODULE, Id),
    ok.

-spec shard_ended(halley_shards:index()) -> ok.
shard_ended(Shard) ->
    true = ets:match_delete(?MODULE, {'_', Shard}),
    ok.
