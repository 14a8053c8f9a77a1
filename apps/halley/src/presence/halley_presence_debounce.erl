%% Leaves are debounced: a member that is away has left once it has been away for a time, unless it
%% comes back. No messages, no time of its own.
-module(halley_presence_debounce).

-export([new/1, back/2, away/3, away_anew/3, due/3]).
-export_type([debounce/0, member/0]).

%% Whatever joins and leaves.
-type member() :: term().

-record(debounce, {
    leave_ms :: pos_integer(),
    away = #{} :: #{member() => DueMs :: integer()},
    %% In the order of time; an entry counts if `away' has the same time.
    queue = queue:new() :: queue:queue({DueMs :: integer(), member()})
}).
-opaque debounce() :: #debounce{}.

-spec new(LeaveMs :: pos_integer()) -> debounce().
new(LeaveMs) -> #debounce{leave_ms = LeaveMs}.

%% It isn't on its way out.
-spec back(member(), debounce()) -> debounce().
back(Member, #debounce{away = Away} = Debounce) when is_map_key(Member, Away) ->
    Debounce#debounce{away = maps:remove(Member, Away)};
back(_, Debounce) ->
    Debounce.

%% It isn't there; if that is known already, since then.
-spec away(member(), NowMs :: integer(), debounce()) -> debounce().
away(Member, _, #debounce{away = Away} = Debounce) when is_map_key(Member, Away) ->
    Debounce;
away(Member, Now, Debounce) ->
    away_anew(Member, Now, Debounce).

%% It isn't there, and was until now, whatever is known of it.
-spec away_anew(member(), NowMs :: integer(), debounce()) -> debounce().
away_anew(Member, Now, #debounce{leave_ms = LeaveMs, away = Away, queue = Queue} = Debounce) ->
    Due = Now + LeaveMs,
    Debounce#debounce{away = Away#{Member => Due}, queue = queue:in({Due, Member}, Queue)}.

%% Those that have been away for long enough, in the order in which they left. Those that are `Held'
%% have a session that is on its way in, and wait once more.
-spec due(NowMs :: integer(), Held :: fun((member()) -> boolean()), debounce()) ->
    {[member()], debounce()}.
due(Now, Held, Debounce) -> due(Now, Held, Debounce, []).

due(Now, Held, #debounce{queue = Queue, away = Away} = Debounce, Left) ->
    case queue:peek(Queue) of
        {value, {Due, Member}} when Due =< Now ->
            Next = Debounce#debounce{queue = queue:drop(Queue)},
            case Away of
                #{Member := Due} ->
                    case Held(Member) of
                        true -> due(Now, Held, away_anew(Member, Now, Next), Left);
                        false -> due(Now, Held, back(Member, Next), [Member | Left])
                    end;
                #{} ->
                    due(Now, Held, Next, Left)
            end;
        _ ->
            {lists:reverse(Left), Debounce}
    end.
