%% The keys that clients' tokens are checked with: read from the configuration's source, told to
%% every edge, read again when a file changes.
%%
%% The brain checks no token: it judges the keys (`halley_jwks') and hands them over, in the
%% handshake and whenever they change (link.md 12). `current/0' has the set in force and its
%% version. After a change every link is sent `token_keys_changed'; a link compares versions when it
%% registers, and so misses none.
%%
%% Whose tokens are revoked (`halley_revocations') stands among the keys, and changes their version.
%%
%% Invariants: in `auth.mode = jwt' there is always a set, since the brain doesn't start without
%% one; it may be empty, and then every token is refused. A broken file changes nothing: the
%% previous set stays in force, and one line in the log and a counter say so. A key that can't be
%% used is left out, with a line in the log as well. The process' state holds no key, and the
%% configured secret is wrapped in a fun, so neither can be printed.
-module(halley_token_keys).
-behaviour(gen_server).

-export([new/0, start_link/0, check_source/1, current/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export_type([source/0, version/0]).

-include_lib("kernel/include/logger.hrl").

-type source() :: none
                | {secret, fun(() -> binary())}
                | {jwks_file | secret_file, file:filename_all()}.
%% Equal if and only if the sets are.
-type version() :: binary().

-define(LOOK_MS, 1000).

-record(state, {source :: source(), seen :: halley_watched:seen()}).

%% Puts the source's keys in force, for a supervisor to do once, before there are links.
-spec new() -> ok.
new() ->
    case read(source()) of
        none -> _ = persistent_term:erase(?MODULE), ok;
        {ok, Set, LeftOut} ->
            _ = put_in_force(Set),
            {Kind, Path} = source(),
            say(Kind, Path, Set, LeftOut)
    end.

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether the source gives keys. The error is one sentence for the operator.
-spec check_source(source()) -> ok | {error, string()}.
check_source(Source) ->
    case read(Source) of
        {error, Line} -> {error, Line};
        _ -> ok
    end.

%% With whose tokens are revoked. `none': nobody needs a token.
-spec current() -> none | {version(), halley_jwks:set()}.
current() ->
    case {own(), halley_revocations:text()} of
        {{Version, Set}, {Revoked, Text}} ->
            {<<Version/binary, (integer_to_binary(Revoked))/binary>>, with_revoked(Set, Text)};
        {Own, _} ->
            Own
    end.

own() -> persistent_term:get(?MODULE, none).

%% link.md 12.10
with_revoked(Set, Text) ->
    Members = binary_part(Set, 0, byte_size(Set) - 1),
    <<Members/binary, ",\"revoked\":", Text/binary, "}">>.

source() ->
    application:get_env(halley, token_keys, none).

read(none) ->
    none;
read({secret, Secret}) ->
    told("auth.hmac_secret", halley_jwks:of_secret(Secret()));
read({Kind, Path}) ->
    Result = case halley_watched:read(Path, bytes_max(), halley_watched:never()) of
        {changed, Bytes, _} -> parse(Kind, Bytes);
        {error, Reason, _} -> {error, halley_watched:explain(Reason)}
    end,
    told([key(Kind), ": ", Path], Result).

told(_, {ok, Set}) -> {ok, Set, []};
told(_, {ok, _, _} = Set) -> Set;
told(What, {error, Reason}) -> {error, unicode:characters_to_list([What, ": ", Reason])}.

key(jwks_file) -> "auth.keys";
key(secret_file) -> "auth.hmac_secret_file".

parse(jwks_file, Bytes) -> halley_jwks:parse(Bytes);
parse(secret_file, Bytes) ->
    case halley_jwks:of_secret(string:trim(Bytes, trailing, "\r\n")) of
        {ok, Set} -> {ok, Set, []};
        {error, _} = Error -> Error
    end.

bytes_max() ->
    halley_limits:get(token_keys_bytes_max).

%% Whether they are others than before.
put_in_force(Set) ->
    Before = own(),
    persistent_term:put(?MODULE, {crypto:hash(sha256, Set), Set}),
    Before =/= own().

%% --- the process -------------------------------------------------------------------------------

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, look_later(#state{source = source(), seen = halley_watched:never()})}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {noreply, #state{}}.
handle_call(_, _, State) ->
    {noreply, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, State) ->
    {noreply, look_later(look(State))};
handle_info(_, State) ->
    {noreply, State}.

look_later(#state{source = {Kind, _}} = State) when Kind =/= secret ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    State;
look_later(State) ->
    State.

look(#state{source = {_, Path}, seen = Seen} = State) ->
    State#state{seen = halley_watched:look(Path, bytes_max(), Seen,
                                           fun(New) -> news(New, State) end)}.

news({changed, Bytes}, #state{source = {Kind, _}} = State) ->
    changed(parse(Kind, Bytes), State);
news({error, Reason}, State) ->
    failed(halley_watched:explain(Reason), State).

changed({ok, Set, LeftOut}, #state{source = {Kind, Path}}) ->
    ok = say(Kind, Path, Set, LeftOut),
    case put_in_force(Set) of
        true ->
            halley_metrics:incr(token_keys_changes),
            ?LOG_NOTICE("~ts: ~ts has changed; its keys are in force", [key(Kind), Path]),
            tell_links();
        false ->
            ok
    end;
changed({error, Reason}, State) ->
    failed(Reason, State).

failed(Reason, #state{source = {Kind, Path}}) ->
    halley_metrics:incr(token_keys_errors),
    ?LOG_ERROR("~ts: ~ts: ~ts; the previous keys stay in force", [key(Kind), Path, Reason]).

%% What an operator should hear of a set that is in force. A secret has nothing to say.
say(secret, _, _, _) ->
    ok;
say(Kind, Path, Set, LeftOut) ->
    _ = [?LOG_WARNING("~ts: ~ts: ~ts; it is left out", [key(Kind), Path, Line])
         || Line <- LeftOut],
    Set =:= halley_jwks:empty() andalso
        ?LOG_WARNING("~ts: ~ts has no key that can be used: every token is refused",
                     [key(Kind), Path]),
    ok.

tell_links() ->
    _ = [Link ! token_keys_changed || #{info := #{link := Link}} <- halley_links:list()],
    ok.
