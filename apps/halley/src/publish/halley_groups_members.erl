%% The members of one group as the workers know them: for each user, how many of its connections.
%%
%% One bit per user number says that one connection of the user is a member; users with more are in
%% a map, and so are users that have processes among their sessions (workers don't know those: they
%% are looked up for each event). Which connections they are isn't kept: `settle/4' takes the truth
%% and returns what to send, which changes nothing where it was sent before.
%%
%% It belongs to one process, the subject's shard: the bits are changed in place. It reads no
%% directory and no follows, and sends nothing (docs/internals/celebrities.md).
-module(halley_groups_members).

-export([new/0, settle/4, count/1, is_member/2, with_processes/1]).
-export_type([members/0, found/0]).

-type user_number() :: halley_id:user_number().
-type word() :: halley_directory:word().
%% What `halley_directory:lookup/2' gives.
-type found() :: 0 | word() | [word() | pid()].

%% Bits of a chunk: 8 KiB of atomics.
-define(CHUNK_BITS, 16).
-define(WORD_BITS, 6).

-record(members, {
    chunks = #{} :: #{non_neg_integer() => atomics:atomics_ref()},
    several = #{} :: #{user_number() => pos_integer()},
    processes = #{} :: #{user_number() => []},
    count = 0 :: non_neg_integer()
}).
-opaque members() :: #members{}.

-spec new() -> members().
new() ->
    #members{}.

%% Connections that are members.
-spec count(members()) -> non_neg_integer().
count(#members{count = Count}) ->
    Count.

%% Whether a user's connections are members.
-spec is_member(user_number(), members()) -> boolean().
is_member(User, Members) ->
    told(User, Members) > 0.

%% Users who follow and had processes among their sessions.
-spec with_processes(members()) -> [user_number()].
with_processes(#members{processes = Processes}) ->
    maps:keys(Processes).

%% The truth about one user: whether it follows, and its sessions. Gives the connections that must
%% be told to be members, or to be none any more.
-spec settle(user_number(), Follows :: boolean(), found(), members()) ->
    {join | leave, [word()], members()}.
settle(User, true, Found, Members) ->
    {Words, Pids} = split(Found),
    {join, Words, processes(User, Pids, set(User, length(Words), Members))};
settle(User, false, Found, Members) ->
    case told(User, Members) of
        0 ->
            {leave, [], processes(User, [], Members)};
        _ ->
            {Words, _} = split(Found),
            {leave, Words, processes(User, [], set(User, 0, Members))}
    end.

split(0) -> {[], []};
split(Word) when is_integer(Word) -> {[Word], []};
split(Rows) -> lists:partition(fun is_integer/1, Rows).

processes(User, [], #members{processes = Processes} = Members)
  when is_map_key(User, Processes) ->
    Members#members{processes = maps:remove(User, Processes)};
processes(_, [], Members) ->
    Members;
processes(User, [_ | _], #members{processes = Processes} = Members) ->
    Members#members{processes = Processes#{User => []}}.

told(User, #members{several = Several, chunks = Chunks}) ->
    case Several of
        #{User := Told} -> Told;
        #{} -> bit(User, Chunks)
    end.

set(User, N, #members{several = Several, count = Count} = Members) ->
    case told(User, Members) of
        N ->
            Members;
        Told ->
            Kept = case N > 1 of
                       true -> Several#{User => N};
                       false -> maps:remove(User, Several)
                   end,
            Chunks = put_bit(User, case N of 1 -> 1; _ -> 0 end, Members#members.chunks),
            Members#members{several = Kept, chunks = Chunks, count = Count + N - Told}
    end.

bit(User, Chunks) ->
    case Chunks of
        #{(User bsr ?CHUNK_BITS) := Chunk} ->
            {Place, Mask} = place(User),
            case atomics:get(Chunk, Place) band Mask of 0 -> 0; _ -> 1 end;
        #{} ->
            0
    end.

put_bit(User, Bit, Chunks) ->
    case Chunks of
        #{(User bsr ?CHUNK_BITS) := Chunk} ->
            {Place, Mask} = place(User),
            Word = atomics:get(Chunk, Place),
            ok = atomics:put(Chunk, Place, case Bit of
                                               1 -> Word bor Mask;
                                               0 -> Word band bnot Mask
                                           end),
            Chunks;
        #{} when Bit =:= 0 ->
            Chunks;
        #{} ->
            Chunk = atomics:new(1 bsl (?CHUNK_BITS - ?WORD_BITS), [{signed, false}]),
            put_bit(User, 1, Chunks#{(User bsr ?CHUNK_BITS) => Chunk})
    end.

place(User) ->
    InChunk = User band ((1 bsl ?CHUNK_BITS) - 1),
    {1 + (InChunk bsr ?WORD_BITS), 1 bsl (InChunk band ((1 bsl ?WORD_BITS) - 1))}.
