%% Turns of processes that read pages of the past (`halley_past').
%%
%% At most `past_pages_max' pages are read and sent at a time in one place, which is a link: so
%% however many are requested, only a few pages wait for that link, and publishing and returning
%% clients find the machine free. Other requests wait, and take turns by their users: many requests
%% of one user delay another's by one page each.
%%
%% A turn ends when its process ends, and so does waiting for one. The number of processes is
%% bounded by the requests in flight of each link.
-module(halley_past_turns).
-behaviour(gen_server).

-export([start_link/0, take/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-type place() :: term().
-type who() :: term().
-type asked() :: {Monitor :: reference(), gen_server:from()}.
%% Invariant: who is in the ring, once, exactly while somebody waits there by that name.
-record(place, {taken = 0 :: non_neg_integer(),
                ring = queue:new() :: queue:queue(who()),
                waiting = #{} :: #{who() => queue:queue(asked())}}).
-record(state, {places = #{} :: #{place() => #place{}},
                turns = #{} :: #{Monitor :: reference() => place()},
                waits = #{} :: #{Monitor :: reference() => {place(), who(), gen_server:from()}}}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Returns when it is the calling process' turn, which it has until it ends.
-spec take(place(), who()) -> ok.
take(Place, Who) ->
    gen_server:call(?MODULE, {take, Place, Who}, infinity).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{}}.

-spec handle_call({take, place(), who()}, gen_server:from(), #state{}) -> {noreply, #state{}}.
handle_call({take, Name, Who}, {Pid, _} = From, #state{places = Places, waits = Waits} = State) ->
    Monitor = monitor(process, Pid),
    Place = add(Who, {Monitor, From}, maps:get(Name, Places, #place{})),
    {noreply, grant(Name, Place, State#state{waits = Waits#{Monitor => {Name, Who, From}}})}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'DOWN', Monitor, process, _, _},
            #state{places = Places, turns = Turns, waits = Waits} = State) ->
    case {Turns, Waits} of
        {#{Monitor := Name}, _} ->
            #{Name := #place{taken = Taken} = Place} = Places,
            {noreply, grant(Name, Place#place{taken = Taken - 1},
                            State#state{turns = maps:remove(Monitor, Turns)})};
        {_, #{Monitor := {Name, Who, From}}} ->
            #{Name := Place} = Places,
            {noreply, grant(Name, without(Who, {Monitor, From}, Place),
                            State#state{waits = maps:remove(Monitor, Waits)})}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% Gives the turns that there are. A place without anybody is forgotten.
grant(Name, #place{taken = 0, waiting = Waiting}, #state{places = Places} = State)
  when map_size(Waiting) =:= 0 ->
    State#state{places = maps:remove(Name, Places)};
grant(Name, #place{taken = Taken, waiting = Waiting} = Place,
      #state{places = Places, turns = Turns, waits = Waits} = State) ->
    case map_size(Waiting) > 0 andalso Taken < halley_limits:get(past_pages_max) of
        true ->
            {{Monitor, From}, Rest} = next(Place),
            gen_server:reply(From, ok),
            grant(Name, Rest#place{taken = Taken + 1},
                  State#state{turns = Turns#{Monitor => Name},
                              waits = maps:remove(Monitor, Waits)});
        false ->
            State#state{places = Places#{Name => Place}}
    end.

%% --- a place -------------------------------------------------------------------------------------

add(Who, Asked, #place{ring = Ring, waiting = Waiting} = Place) ->
    case Waiting of
        #{Who := Before} ->
            Place#place{waiting = Waiting#{Who := queue:in(Asked, Before)}};
        #{} ->
            Place#place{ring = queue:in(Who, Ring),
                        waiting = Waiting#{Who => queue:in(Asked, queue:new())}}
    end.

%% The first of whoever is first, who goes behind the others if more wait by that name.
next(#place{ring = Ring, waiting = Waiting} = Place) ->
    {{value, Who}, Others} = queue:out(Ring),
    {{value, Asked}, Left} = queue:out(map_get(Who, Waiting)),
    {Asked, case queue:is_empty(Left) of
                true -> Place#place{ring = Others, waiting = maps:remove(Who, Waiting)};
                false -> Place#place{ring = queue:in(Who, Others), waiting = Waiting#{Who := Left}}
            end}.

without(Who, Asked, #place{ring = Ring, waiting = Waiting} = Place) ->
    Left = queue:delete(Asked, map_get(Who, Waiting)),
    case queue:is_empty(Left) of
        true -> Place#place{ring = queue:delete(Who, Ring), waiting = maps:remove(Who, Waiting)};
        false -> Place#place{waiting = Waiting#{Who := Left}}
    end.
