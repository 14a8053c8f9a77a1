%% A link's position: the vector of what has passed it, and what waits for the vector to move. Pure;
%% halley_edge_trunk_writer acts on what it gives. The trunk has one, and each of its slots that
%% doesn't follow it has another.
%%
%% A message of a shard passes the writer after all earlier ones of that shard, so the vector's
%% part for a shard is the seq of the shard's last message. It becomes the link's cursor
%% (protocol/link.md 10.1): "everything that concerns a live session of this worker, up to here, has
%% been sent on the link".
%%
%% Three modes:
%%   live      what comes is sent;
%%   skipping  what comes is dropped: a catch-up has yet to read its heads, and whatever was drawn
%%             before that is not above them;
%%   holding   what comes is kept in order: a catch-up is on its way to its heads. Once there,
%%             what isn't above them is dropped and the rest is sent.
%% The vector moves by the catch-up alone while the mode isn't live.
%%
%% LAST frames of replays wait until the vector has reached their heads (10.5). They leave in the
%% order they came, so only the first of those that wait is looked at. OPENED waits likewise, so
%% that a client's first cursor is not below what was published before it came; but only while the
%% mode is live, as a catch-up may take longer than a client's patience.
-module(halley_edge_position).

-export([new/2, move_to/2, enter/2, release/2, mode/1]).
-export([passed/3, marked/3, keep/2, cursor/1, clock/2, stands_at/1]).
-export([await/4, reached/1, awaits/1, lagging/1, joined/2]).
-export_type([position/0, mode/0]).

-type mode() :: live | skipping | holding.

-record(position, {
    store :: halley_cursor:store(),
    vector :: halley_history:vector(),
    seconds = 0 :: non_neg_integer(),
    cursor = none :: binary() | none,             % of the vector, once asked for
    mode = live :: mode(),
    held = [] :: [term()],                        % in reverse
    marks = #{} :: #{pos_integer() => halley_history:seq()},
    awaiting = queue:new() :: queue:queue({halley_history:vector(), term()}),
    openings = [] :: [{halley_history:vector(), term()}]      % newest first
}).
-opaque position() :: #position{}.

-spec new(halley_cursor:store(), halley_history:vector()) -> position().
new(Store, Vector) ->
    #position{store = Store, vector = Vector}.

%% Puts the vector elsewhere, back as well.
-spec move_to(halley_history:vector(), position()) -> position().
move_to(Vector, Position) ->
    Position#position{vector = Vector, cursor = none}.

-spec mode(position()) -> mode().
mode(#position{mode = Mode}) -> Mode.

%% What the next cursor says: its vector, and its time in seconds since 1970.
-spec stands_at(position()) -> {halley_history:vector(), Second :: non_neg_integer()}.
stands_at(#position{vector = Vector, seconds = Second}) -> {Vector, Second}.

%% What comes is dropped from now on, or kept.
-spec enter(skipping | holding, position()) -> position().
enter(skipping, Position) ->
    Position#position{mode = skipping};
enter(holding, Position) ->
    Position#position{mode = holding, held = [], marks = #{}}.

%% Keeps a message while holding.
-spec keep(Message :: term(), position()) -> position().
keep(Message, #position{held = Held} = Position) ->
    Position#position{held = [Message | Held]}.

%% The catch-up has reached its heads: live again, with what was held, in order, and the marks that
%% came meanwhile, which are to be applied behind it.
-spec release(Heads :: halley_history:vector(), position()) ->
    {[term()], [{Shard :: pos_integer(), halley_history:seq()}], position()}.
release(Heads, #position{vector = Vector, held = Held, marks = Marks} = Position) ->
    Furthest = halley_vector:advance(halley_vector:largest(Heads), Vector, Heads),
    {lists:reverse(Held), maps:to_list(Marks),
     Position#position{mode = live, held = [], marks = #{}, vector = Furthest, cursor = none}}.

%% An event of a shard is sent with the next cursor.
-spec passed(Shard :: pos_integer(), halley_history:seq(), position()) -> position().
passed(Shard, Seq, #position{vector = Vector} = Position) when Seq > element(Shard, Vector) ->
    Position#position{vector = setelement(Shard, Vector, Seq), cursor = none};
passed(_, _, Position) ->
    Position.

%% A shard has marked its position.
-spec marked(Shard :: pos_integer(), halley_history:seq(), position()) ->
    {moved | same, position()}.
marked(_, _, #position{mode = skipping} = Position) ->
    {same, Position};
marked(Shard, Seq, #position{mode = holding, marks = Marks} = Position) ->
    {same, Position#position{marks = Marks#{Shard => Seq}}};
marked(Shard, Seq, #position{vector = Vector} = Position) when Seq > element(Shard, Vector) ->
    {moved, passed(Shard, Seq, Position)};
marked(_, _, Position) ->
    {same, Position}.

%% The time that cursors carry; to be told often enough. It stands still while the link catches up.
-spec clock(Seconds :: non_neg_integer(), position()) -> position().
clock(Seconds, #position{seconds = Before, mode = live} = Position) when Seconds =/= Before ->
    Position#position{seconds = Seconds, cursor = none};
clock(_, Position) ->
    Position.

-spec cursor(position()) -> {binary(), position()}.
cursor(#position{cursor = none, store = Store, seconds = Seconds, vector = Vector} = Position) ->
    Cursor = halley_cursor:encode(Store, Seconds, Vector),
    {Cursor, Position#position{cursor = Cursor}};
cursor(#position{cursor = Cursor} = Position) ->
    {Cursor, Position}.

%% Something waits for the vector to reach Heads; an opening only as long as the mode is live.
-spec await(last | opening, Heads :: halley_history:vector(), Waiter :: term(), position()) ->
    position().
await(last, Heads, Waiter, #position{awaiting = Awaiting} = Position) ->
    Position#position{awaiting = queue:in({Heads, Waiter}, Awaiting)};
await(opening, Heads, Waiter, #position{openings = Openings} = Position) ->
    Position#position{openings = [{Heads, Waiter} | Openings]}.

%% Those that need wait no longer, in order, the openings first.
-spec reached(position()) -> {[{Heads :: halley_history:vector(), Waiter :: term()}], position()}.
reached(#position{vector = Vector, mode = Mode} = Position) ->
    #position{awaiting = Awaiting, openings = Openings} = Position,
    {Reached, Rest} = reached(Awaiting, Vector, []),
    {Waiting, Opened} = lists:partition(fun({Heads, _}) ->
        Mode =:= live andalso not halley_vector:is_reached(Heads, Vector)
    end, Openings),
    {lists:reverse(Opened, Reached), Position#position{awaiting = Rest, openings = Waiting}}.

reached(Awaiting, Vector, Reached) ->
    case queue:peek(Awaiting) of
        {value, {Heads, _} = First} ->
            case halley_vector:is_reached(Heads, Vector) of
                true -> reached(queue:drop(Awaiting), Vector, [First | Reached]);
                false -> {lists:reverse(Reached), Awaiting}
            end;
        empty ->
            {lists:reverse(Reached), Awaiting}
    end.

%% A slot of a trunk goes on by the trunk's position, which takes over what waits. Both are live,
%% and have been sent the same since each of them was: what concerns either is sent up to the
%% further of the two.
-spec joined(OfSlot :: position(), OfTrunk :: position()) -> position().
joined(#position{vector = Further, awaiting = Others, openings = OfOthers},
       #position{vector = Vector, awaiting = Awaiting, openings = Openings} = Position) ->
    Position#position{vector = halley_vector:furthest(Further, Vector), cursor = none,
                      awaiting = queue:join(Awaiting, Others), openings = OfOthers ++ Openings}.

%% The shards whose marks may bring closer what waits; none while the mode isn't live. Heads rise,
%% so those of the newest LAST are the furthest, but for some that were read at the same time.
-spec lagging(position()) -> [halley_shards:index()].
lagging(#position{mode = live, vector = Vector, awaiting = Awaiting, openings = Openings}
        = Position) ->
    case awaits(Position) of
        false ->
            [];
        true ->
            Ends = [Heads || {value, {Heads, _}} <- [queue:peek(Awaiting),
                                                     queue:peek_r(Awaiting)]],
            Goal = lists:foldl(fun halley_vector:furthest/2, Vector,
                               Ends ++ [Heads || {Heads, _} <- Openings]),
            [Shard || Shard <- lists:seq(1, tuple_size(Vector)),
                      element(Shard, Vector) < element(Shard, Goal)]
    end;
lagging(_) ->
    [].

-spec awaits(position()) -> boolean().
awaits(#position{awaiting = Awaiting, openings = Openings}) ->
    Openings =/= [] orelse not queue:is_empty(Awaiting).
