%% Keeps the ring of a `ketama.servers' file in a persistent term, and looks at the file from time
%% to time. A look-up of an owner reads the persistent term and never calls this process.
%%
%% A changed file is taken when two looks in a row see the same in it: an editor that is in the
%% middle of writing must not move keys. `file_info' has whole seconds, so a file counts as seen
%% only once its last change lies ?SETTLED_S back; until then each look reads it.
%%
%% Invariants: once this process has started there is a ring under its name until it is shut down,
%% also while a supervisor starts it anew. A file that is broken or gone changes nothing: the ring
%% of before stays, and one line in the log and `status/1' say why.
%%
%% It doesn't find out whether a server lives.
-module(ketama_ring_server).
-behaviour(gen_server).

-export([start_link/2, ring/1, status/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([options/0, status/0]).

-include_lib("kernel/include/file.hrl").
-include_lib("kernel/include/logger.hrl").

%% `name': of the process and of the ring, `ketama' if not given. `look_ms': how often the file is
%% looked at, 1,000 if not given. The others are those of `ketama_mode'.
-type options() :: #{name => atom(), look_ms => pos_integer(), mode => ketama_mode:mode(),
                     hash => ketama_hash:hash()}.
%% `error': why the file as it is isn't in force; `none' if it is.
-type status() :: #{file := file:name_all(), servers := pos_integer(), points := pos_integer(),
                    error := none | reason()}.
-type reason() :: ketama_servers_file:reason() | ketama_mode:reason().

-define(LOOK_MS, 1000).
-define(LOOK_MS_MAX, 3600000).
-define(SETTLED_S, 2).

-record(state, {name :: atom(),
                file :: file:name_all(),
                look_ms :: pos_integer(),
                options :: ketama_mode:options(),
                in_force = none :: none | digest(),
                found = none :: none | digest(),     %% by the look before
                judged = none :: none | digest(),    %% good or bad, it needs no second look
                seen = none :: none | tuple(),       %% what needn't be read again
                error = none :: none | reason()}).
-type digest() :: binary().

-spec start_link(file:name_all(), options()) -> gen_server:start_ret().
start_link(File, Options) ->
    case check(Options) of
        ok -> gen_server:start_link({local, name(Options)}, ?MODULE, {File, Options}, []);
        {error, _} = Error -> Error
    end.

check(#{name := Name}) when not is_atom(Name); Name =:= undefined ->
    {error, {bad_option, name}};
check(#{look_ms := Ms}) when not is_integer(Ms); Ms < 1; Ms > ?LOOK_MS_MAX ->
    {error, {bad_option, look_ms}};
check(#{}) ->
    ok;
check(_) ->
    {error, {bad_option, options}}.

name(Options) -> maps:get(name, Options, ketama).

%% The ring in force. Exits as a call does if there is none.
-spec ring(Name :: atom()) -> ketama_ring:ring().
ring(Name) ->
    case persistent_term:get({?MODULE, Name}, none) of
        none -> exit({noproc, {ketama, ring, [Name]}});
        Ring -> Ring
    end.

%% Asks the process.
-spec status(Name :: atom()) -> status().
status(Name) -> gen_server:call(Name, status).

%% --- the process -------------------------------------------------------------------------------

-spec init({file:name_all(), options()}) -> {ok, #state{}} | {stop, reason()}.
init({File, Options}) ->
    process_flag(trap_exit, true),
    State = #state{name = name(Options), file = File,
                   look_ms = maps:get(look_ms, Options, ?LOOK_MS),
                   options = maps:without([name, look_ms], Options)},
    case ketama_servers_file:read(File) of
        {ok, Content} ->
            case ring(Content, State) of
                {ok, Ring} -> {ok, look_later(put(Ring, digest(Content), State))};
                {error, Reason} -> {stop, Reason}
            end;
        {error, Reason} ->
            {stop, Reason}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(status, _, #state{name = Name, file = File, error = Error} = State) ->
    Ring = ring(Name),
    {reply, #{file => File, servers => length(ketama_ring:servers(Ring)),
              points => ketama_ring:count(Ring), error => Error}, State};
handle_call(_, _, State) ->
    {reply, {error, unknown_call}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info(look, State) ->
    {noreply, look_later(look(State))};
handle_info(_, State) ->
    {noreply, State}.

%% A crash leaves the ring, so that nobody notices the start that follows.
-spec terminate(term(), #state{}) -> ok.
terminate(Reason, #state{name = Name}) when Reason =:= normal; Reason =:= shutdown;
                                            element(1, Reason) =:= shutdown ->
    _ = persistent_term:erase({?MODULE, Name}),
    ok;
terminate(_, _) ->
    ok.

look_later(#state{look_ms = Ms} = State) ->
    _ = erlang:send_after(Ms, self(), look),
    State.

look(#state{file = File, seen = Seen} = State) ->
    case file:read_file_info(File, [raw, {time, posix}]) of
        {ok, Info} when Seen =/= none ->
            case mark(Info) of
                Seen -> State;
                _ -> read(Info, State)
            end;
        {ok, Info} -> read(Info, State);
        {error, Reason} -> gone({file, Reason}, State)
    end.

mark(#file_info{size = Size, mtime = Mtime, ctime = Ctime, inode = Inode,
                major_device = Device}) ->
    {Size, Mtime, Ctime, Inode, Device}.

%% `Info' is of before the reading: what changes from then on has another mark, or is too new to
%% have been seen.
read(Info, #state{file = File} = State) ->
    case ketama_servers_file:read(File) of
        {ok, Content} -> seen(Info, judge(Content, State));
        {error, Reason} -> gone(Reason, State)
    end.

seen(#file_info{mtime = Mtime, ctime = Ctime} = Info,
     #state{judged = Same, found = Same} = State) ->
    case os:system_time(second) - max(Mtime, Ctime) >= ?SETTLED_S of
        true -> State#state{seen = mark(Info)};
        false -> State#state{seen = none}
    end;
seen(_, State) ->
    State#state{seen = none}.

judge(Content, #state{in_force = InForce, judged = Judged, found = Found} = State) ->
    case digest(Content) of
        InForce -> State#state{found = InForce, judged = InForce, error = none};
        Judged -> State#state{found = Judged};
        Found -> change(Content, Found, State);
        New -> State#state{found = New}
    end.

change(Content, Digest, State) ->
    case ring(Content, State) of
        {ok, Ring} ->
            ?LOG_NOTICE("~ts: the ring is new, of ~b servers",
                        [State#state.file, length(ketama_ring:servers(Ring))]),
            put(Ring, Digest, State);
        {error, Reason} ->
            say(Reason, State),
            State#state{judged = Digest, error = Reason}
    end.

ring(Content, #state{options = Options}) ->
    case ketama_servers_file:parse(Content) of
        {ok, Servers} -> ketama_ring:new(Servers, Options);
        {error, _} = Error -> Error
    end.

put(Ring, Digest, #state{name = Name} = State) ->
    ok = persistent_term:put({?MODULE, Name}, Ring),
    State#state{in_force = Digest, found = Digest, judged = Digest, error = none}.

gone(Reason, #state{error = Error} = State) ->
    _ = [say(Reason, State) || Reason =/= Error],
    State#state{found = none, judged = none, seen = none, error = Reason}.

say(Reason, #state{file = File}) ->
    ?LOG_ERROR("~ts: ~ts; the previous ring stays", [File, ketama_servers_file:explain(Reason)]).

digest(Content) -> erlang:md5(Content).
