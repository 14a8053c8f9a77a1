%% The server keys in force: whether the API needs one, and what each may do.
%%
%% A key is needed as soon as one exists, and from then on, until `./halley key open' says
%% otherwise; and always where the API listener is not on loopback: there the brain doesn't start
%% without any (`check_start/1').
%%
%% `./halley key' writes the file (`halley_server_keys_file'). This process checks it every ?LOOK_MS
%% and puts the keys into a persistent term, which requests read without asking a process. Before a
%% request with an unknown key is refused, the file is checked again, so a new key works at once; a
%% revoked one is refused within ?LOOK_MS.
%%
%% Invariants: before the first reading every request needs a key, and every key is refused. If the
%% file is broken, empty, another user's or gone, the previous keys stay in force; one line in the
%% log and a counter say so. Nothing here holds a key itself, only digests.
-module(halley_server_keys).
-behaviour(gen_server).

-export([new/0, start_link/0, check_start/1, check/1, in_force/0, force/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([verdict/0]).

-include_lib("kernel/include/logger.hrl").

%% `open': no key is needed. `missing': the header isn't there, or has no server key. `too_often':
%% the key is good, and was used `requests_per_s_per_key_max' times in the last second.
-type verdict() :: open | {ok, [halley_server_key:scope()]} | missing | unknown
                 | {too_often, RetryAfterS :: pos_integer()}.

-define(LOOK_MS, 250).
-define(BYTES_PER_KEY_MAX, 512).
-define(CLOSED, #{needed => true, keys => #{}}).

-record(state, {path :: file:filename_all(), seen :: halley_watched:seen()}).

%% Puts what is in the data directory in force. Done once, before the API is there.
-spec new() -> ok.
new() ->
    {ok, {Keys, _} = Stored} = halley_server_keys_file:read(data_dir()),
    %% A build before this one may have made the keys.
    _ = [halley_server_keys_file:remember(data_dir()) || Keys =/= []],
    IsNeeded = is_needed(Stored),
    _ = [?LOG_WARNING("~ts has no key: the API refuses everybody; `./halley key create` makes one, "
                      "`./halley key open` opens an API on loopback without",
                      [halley_server_keys_file:path(data_dir())]) || IsNeeded, Keys =:= []],
    force(IsNeeded, Keys).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether the API may listen where it is to listen. The error is one sentence for the operator.
-spec check_start(ApiListen :: string()) -> ok | {error, string()}.
check_start(ApiListen) ->
    case {halley_server_keys_file:read(data_dir()), halley_config_check:is_loopback(ApiListen)} of
        {{error, Reason}, _} ->
            {error, unicode:characters_to_list(Reason)};
        {{ok, {[], _}}, false} ->
            {error, "api.listen: " ++ ApiListen ++ " can be reached from other machines, and there "
                    "is no server key; make one first, such as by "
                    "`./halley key create <name> --scope publish,follow,read`, or listen on a "
                    "loopback address"};
        {{ok, _}, _} ->
            ok
    end.

%% Judges the value of an Authorization header.
-spec check(binary() | undefined) -> verdict().
check(Authorization) ->
    case persistent_term:get(?MODULE, ?CLOSED) of
        #{needed := false} -> open;
        #{keys := Keys} -> key(bearer(Authorization), Keys)
    end.

%% Something that is another thing once the keys have changed, or whether one is needed.
-spec in_force() -> term().
in_force() -> persistent_term:get(?MODULE, ?CLOSED).

%% RFC 9110, 11.1: the scheme's name is case-insensitive.
bearer(<<Scheme:6/binary, $\s, Text/binary>>)
        when Scheme =:= <<"Bearer">>; Scheme =:= <<"bearer">>; Scheme =:= <<"BEARER">> ->
    Text;
bearer(_) ->
    <<>>.

key(Text, Keys) ->
    case halley_server_key:id(Text) of
        {ok, Id} -> known(Text, Id, Keys);
        error -> missing
    end.

known(Text, Id, Keys) ->
    case Keys of
        #{Id := {Key, Meter}} -> opens(Text, Key, Meter);
        #{} -> perhaps_new(Text, Id)
    end.

perhaps_new(Text, Id) ->
    try gen_server:call(?MODULE, look) of
        ok ->
            #{keys := Keys} = persistent_term:get(?MODULE, ?CLOSED),
            case Keys of
                #{Id := {Key, Meter}} -> opens(Text, Key, Meter);
                #{} -> unknown
            end
    catch
        exit:_ -> unknown
    end.

opens(Text, #{scopes := Scopes} = Key, Meter) ->
    case halley_server_key:opens(Text, Key) of
        true -> often(Scopes, Meter);
        false -> unknown
    end.

%% Only requests with the whole key count: somebody who knows just its id can't use up its rate.
often(Scopes, Meter) ->
    case halley_rate:take(Meter, halley_limits:get(requests_per_s_per_key_max)) of
        ok -> {ok, Scopes};
        {wait, Ms} -> {too_often, (Ms + 999) div 1000}
    end.

%% Puts keys in force; for this module and for tests. One that was in force before is counted on.
-spec force(IsNeeded :: boolean(), [halley_server_key:key()]) -> ok.
force(IsNeeded, Keys) ->
    #{keys := Before} = persistent_term:get(?MODULE, ?CLOSED),
    ById = maps:from_list([{Id, {Key, meter(Id, Before)}} || #{id := Id} = Key <- Keys]),
    persistent_term:put(?MODULE, #{needed => IsNeeded, keys => ById}).

meter(Id, Before) ->
    case Before of
        #{Id := {_, Meter}} -> Meter;
        #{} -> halley_rate:new()
    end.

is_needed({Keys, WhenNone}) ->
    Keys =/= [] orelse WhenNone =/= open
        orelse not application:get_env(halley, api_on_loopback, false).

data_dir() ->
    application:get_env(halley, data_dir, "data").

%% --- the process -------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    State = #state{path = halley_server_keys_file:path(data_dir()), seen = halley_watched:never()},
    {ok, look_later(look(State))}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, ok, #state{}}.
handle_call(look, _, State) ->
    {reply, ok, look(State)}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, State) ->
    {noreply, look_later(look(State))};
handle_info(_, State) ->
    {noreply, State}.

look_later(State) ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    State.

look(#state{path = Path, seen = Seen} = State) ->
    BytesMax = ?BYTES_PER_KEY_MAX * halley_limits:get(server_keys_max),
    State#state{seen = halley_watched:look(Path, BytesMax, Seen, fun(New) -> news(New, Path) end)}.

news({changed, Bytes}, Path) ->
    changed(judge(Path, Bytes), Path);
news({error, Reason}, Path) ->
    %% There is no file before the first key.
    Reason =:= enoent andalso not has_keys()
        orelse failed(Path, halley_watched:explain(Reason)).

has_keys() -> map_size(map_get(keys, persistent_term:get(?MODULE, ?CLOSED))) > 0.

judge(Path, Bytes) ->
    case {halley_data_dir:check_owner(Path), halley_server_keys_file:parse(Bytes)} of
        {{error, _} = Error, _} -> Error;
        {ok, {ok, {[], empty}} = Empty} ->
            case has_keys() of
                true -> {error, "it is empty; to end a key, use `./halley key revoke`"};
                false -> Empty
            end;
        {ok, Parsed} -> Parsed
    end.

changed({ok, {Keys, _} = Stored}, _) ->
    Before = persistent_term:get(?MODULE, ?CLOSED),
    force(is_needed(Stored), Keys),
    After = persistent_term:get(?MODULE),
    Before =:= After orelse
        ?LOG_NOTICE("server keys: ~b in force; the API ~ts",
                    [length(Keys), case After of
                                       #{needed := true} -> "needs one";
                                       #{needed := false} -> "is open to this machine"
                                   end]),
    ok;
changed({error, Reason}, Path) ->
    failed(Path, Reason).

failed(Path, Reason) ->
    halley_metrics:incr(server_keys_errors),
    ?LOG_ERROR("~ts: ~ts; the previous server keys stay in force", [Path, Reason]).
