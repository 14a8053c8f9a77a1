%% A Halley on another node, for Erlang code: publish, follow, and be a session of a user.
%%
%%   ok = halley_remote:start(#{node => 'halley@127.0.0.1', host => "10.0.0.5", port => 8090,
%%                              secret_file => "halley.secret"}),
%%   {ok, _} = halley_remote:publish(<<"ann">>, #{text => <<"hi">>}, #{id => <<"order-7">>}),
%%   {ok, Session} = halley_remote:login(<<"ann">>),
%%   receive {halley, #{id := Id, data := Data}} -> ... end
%%
%% A process that logged in receives, in order,
%%   {halley, #{user, id, subject, at, data, cursor}}
%%                                   an event of what the user follows; one about several subjects
%%                                   has `subjects', and a private one `private => true', for the
%%                                   subject
%%   {halley_gap, User, #{reason, from, to, cursor}}
%%                                   events between these times may be missing
%%   {halley_closed, User}           the server closed the session; it is not opened again
%%   {halley_broken, User, Cursor}   the session broke, or this application was stopped: log in
%%                                   again with the last event's cursor, or this one if none came
%% An event comes when it is on Halley's disk. After a break of the connection, or of Halley, the
%% session goes on after the last event that is in the process's mailbox, so each comes once. To go
%% on after the end of its own process or node, code keeps the cursor with the results of the event,
%% and logs in with it.
%%
%% Nothing comes while the process has `mailbox_max' messages in its mailbox. A session ends with
%% its process.
%%
%% A change may have been done if the answer is `{error, unavailable}': repeat it, an event with the
%% same `id'.
-module(halley_remote).

-export([start/1, publish/2, publish/3, publish_many/1]).
-export([follow/1, follow/2, unfollow/1, unfollow/2, followers/1, following/1]).
-export([presence/1, close_sessions/1, forget/1]).
-export([login/1, login/2, logout/1, began/1, cursor/1, status/0, explain/1]).
-export_type([id/0, whom/0, session/0, cursor/0, problem/0]).

-type id() :: binary().
%% Who gets an event: who follows its subject, or any of its subjects, and the user whose id that
%% is; or these users alone.
-type whom() :: id() | {subjects, [id(), ...]} | {to, [id(), ...]}.
-type cursor() :: binary().
-opaque session() :: pid().
%% `unavailable': no answer came. `too_large': of the request. The others are Halley's; `explain/1'
%% says what each means.
-type problem() :: unavailable | too_large | not_started | atom() | {atom(), term()}.

-define(CALL_MS, 5000).

%% Starts the application with these options in its environment: `node', the name of Halley's node
%% (its `node.name'); `host' and `port', where its `remote.listen' is reached; `secret' or
%% `secret_file'.
-spec start(#{node := node(), host := inet:ip_address() | inet:hostname(),
              port := inet:port_number(), secret => binary(), secret_file => file:filename()}) ->
    ok | {error, term()}.
start(Options) ->
    _ = application:load(?MODULE),
    _ = [application:set_env(?MODULE, Key, Value) || {Key, Value} <- maps:to_list(Options)],
    case application:ensure_all_started(?MODULE) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

-spec publish(whom(), Data :: term()) ->
    {ok, #{id := id(), sessions := non_neg_integer()}} | {error, problem()}.
publish(Whom, Data) -> publish(Whom, Data, #{}).

%% `Data' is a term that becomes JSON. `id': the event's, chosen by the publisher; the same again
%% gives the first answer again and no second event. `ack': `disk' or `memory'. `keep': it is the
%% subject's latest value from now on, beyond the retention; with the data `null' there is none any
%% more. When it returns `ok' the event is on Halley's disk, unless `ack' is `memory'.
-spec publish(whom(), Data :: term(), #{id => id(), ack => disk | memory, keep => boolean()}) ->
    {ok, #{id := id(), sessions := non_neg_integer()}} | {error, problem()}.
publish(Whom, Data, Opts) ->
    case publish_many([{Whom, Data, Opts}]) of
        [Result] -> Result;
        {error, _} = Error -> Error
    end.

%% A batch of at most 1,000; results come in the order of the items, and each item fails alone.
-spec publish_many([{whom(), Data :: term(), map()}]) ->
    [{ok, #{id := id(), sessions := non_neg_integer()}} | {error, problem()}]
    | {error, problem()}.
publish_many(Items) ->
    request({publish, [{Whom, json(Data), Opts} || {Whom, Data, Opts} <- Items]}).

%% Atoms as JSON has them: Halley's node doesn't know this one's.
json(Atom) when is_atom(Atom), Atom =/= true, Atom =/= false, Atom =/= null ->
    atom_to_binary(Atom);
json(Map) when is_map(Map) ->
    maps:from_list([{json(Key), json(Value)} || {Key, Value} <- maps:to_list(Map)]);
json(List) when is_list(List) ->
    [json(Element) || Element <- List];
json({Members}) when is_list(Members) ->
    {[{json(Key), json(Value)} || {Key, Value} <- Members]};
json(Data) ->
    Data.

%% When it returns, the follows are on disk and in effect. At most 100,000 pairs.
-spec follow([{User :: id(), Subject :: id()}]) -> {ok, map()} | {error, problem()}.
follow(Pairs) -> request({follow, Pairs}).

-spec follow(User :: id(), Subject :: id()) -> ok | {error, problem()}.
follow(User, Subject) -> one(follow([{User, Subject}])).

-spec unfollow([{User :: id(), Subject :: id()}]) -> {ok, map()} | {error, problem()}.
unfollow(Pairs) -> request({unfollow, Pairs}).

-spec unfollow(User :: id(), Subject :: id()) -> ok | {error, problem()}.
unfollow(User, Subject) -> one(unfollow([{User, Subject}])).

one({ok, #{errors := [{_, Reason} | _]}}) -> {error, Reason};
one({ok, _}) -> ok;
one({error, _} = Error) -> Error.

%% All of them, a page at a time.
-spec followers(Subject :: id()) -> {ok, [User :: id()]} | {error, problem()}.
followers(Subject) -> all(followers, Subject, start, []).

-spec following(User :: id()) -> {ok, [Subject :: id()]} | {error, problem()}.
following(User) -> all(following, User, start, []).

all(What, Id, After, Pages) ->
    case request({What, Id, After}) of
        {ok, Ids, done} -> {ok, lists:append(lists:reverse(Pages, [Ids]))};
        {ok, Ids, Next} -> all(What, Id, Next, [Ids | Pages]);
        {error, _} = Error -> Error
    end.

-spec presence(User :: id()) ->
    {ok, #{user := id(), sessions := non_neg_integer()}} | {error, problem()}.
presence(User) -> request({presence, User}).

-spec close_sessions(User :: id()) -> {ok, non_neg_integer()} | {error, problem()}.
close_sessions(User) -> request({close_sessions, User}).

-spec forget(User :: id()) -> {ok, map()} | {error, problem()}.
forget(User) -> request({forget, User}).

%% Makes the calling process a session of the user, from now on.
-spec login(User :: id()) -> {ok, session()} | {error, problem()}.
login(User) -> login(User, #{}).

%% `cursor': what came behind it comes first. `mailbox_max': messages in the process's mailbox with
%% which nothing more is put there; 100. A process may be a session of several users.
-spec login(User :: id(), #{cursor => cursor(), mailbox_max => pos_integer()}) ->
    {ok, session()} | {error, problem()}.
login(User, Options) -> halley_remote_session:open(User, self(), Options).

%% Nothing of it comes afterwards; what is in the mailbox stays there.
-spec logout(session()) -> ok.
logout(Session) -> halley_remote_session:close(Session).

%% Where the session began: the cursor of its login, or that of the moment. To be kept before the
%% first event is dealt with, which may be in the mailbox already.
-spec began(session()) -> cursor().
began(Session) -> halley_remote_session:began(Session).

%% Behind the last event that is in the process's mailbox. It moves on when nothing comes, too, so
%% who keeps cursors looks at it now and then.
-spec cursor(session()) -> cursor().
cursor(Session) -> halley_remote_session:cursor(Session).

%% Of the link to Halley.
-spec status() -> teleport:status().
status() -> teleport:status(halley_remote_node:get()).

request(Request) -> halley_remote_node:call({request, Request}, ?CALL_MS).

%% What a problem means and what to do. It has all the words that Halley answers with, which a node
%% must know to read them.
-spec explain(problem()) -> string().
explain({other, Text}) -> unicode:characters_to_list(Text);
explain({Problem, _}) -> explain(Problem);
explain(unavailable) ->
    "Halley can't be reached, or didn't answer; it may have been done: ask again";
explain(not_started) -> "the application halley_remote doesn't run on this node";
explain(overloaded) -> "nothing was done: Halley is overloaded; ask again soon";
explain(too_large) -> "the request is larger than limits.remote_message_bytes_max";
explain(bad_request) -> "Halley can't read the request";
explain(bad_version) -> "this Halley speaks another version of the protocol";
explain(bad_id) -> "an id has 1 to 255 bytes of UTF-8";
explain(bad_to) -> "a private event is for a list of 1 to 1,000 users";
explain(bad_subjects) -> "an event is about one subject or a list of some";
explain(bad_option) -> "the options of an event are `id', `ack' and, about one subject, `keep'";
explain(bad_data) -> "the data can't be made JSON";
explain(data_too_large) -> "the data is larger than limits.event_data_bytes_max";
explain(too_many_kept) -> "kept values have limits.kept_bytes_max; clear some with the data null";
explain(disk_full) -> "nothing was done: Halley's disk is full";
explain(data_dir_moved) -> "Halley's data.dir was moved; its log says more";
explain(history_failed) -> "Halley's history can't be written; its log says why";
explain(store_failed) -> "Halley's store can't be written; its log says why";
explain(too_many_ids) -> "Halley has no room for another id; raise limits.ids_max";
explain(too_many_new_ids) -> "too many new ids; wait so many milliseconds";
explain(too_many_follows) -> "the user follows limits.follows_per_user_max subjects";
explain(self) -> "a user always follows itself";
explain(too_many_sessions) -> "the user has limits.sessions_per_user_max sessions";
explain(too_many_remote_sessions) -> "back ends have limits.remote_sessions_max sessions";
explain(Problem) -> lists:flatten(io_lib:format("~0tp", [Problem])).
