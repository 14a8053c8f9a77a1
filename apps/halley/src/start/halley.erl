%% Halley: publish about a subject, and every connected follower has it.
%%
%% The calls for Erlang code. Users and subjects are ids: 1..255 bytes of UTF-8. Every function may
%% be called from any process.
%%
%% A process can be a session of a user: it logs in, receives `{halley, #{id, subject, at, data}}'
%% for every event of what the user follows (objects in the data are maps), and is logged out when
%% it dies. Of an event about several subjects that is `{halley, #{id, subjects, at, data}}', and of
%% one to the user alone `{halley, #{id, private => true, at, data}}'. Its mailbox is its own:
%% nothing is dropped and nothing is held back there.
%%
%% Such a message has no cursor, and is sent before the event is on disk. A process that must miss
%% nothing logs in, reads from its cursor on (`read/2') until there is no more, and reads again
%% after each message: the message then says only that there is something. docs/guides/embedding.md
%% has the loop.
-module(halley).

-export([publish/2, publish/3, publish_many/1]).
-export([follow/1, follow/2, unfollow/1, unfollow/2, followers/1, following/1]).
-export([login/1, login/2, logout/1, presence/1, close_sessions/1, forget/1]).
-export([cursor/0, read/2, read/3]).
-export_type([id/0, whom/0, cursor/0]).

-type id() :: binary().

%% Text of [A-Za-z0-9_-], at most 255 bytes: all that a user has seen. The same on every transport.
-type cursor() :: halley_cursor:token().

%% Halley sends at most so many ids at a time while it makes a whole list.
-define(PAGE, 1000).

%% Who gets an event: who follows its subject, or any of its subjects, and the user whose id that
%% is; or these users alone. `event_subjects_max' subjects and `private_users_max' users at most.
-type whom() :: id() | {subjects, [id()]} | {to, [id()]}.

%% Publishes `Data', any term that jiffy can encode or `{json, Text}' with valid JSON on one line.
%% `sessions': how many live sessions it was sent to. When it returns `ok', the event is on disk:
%% whoever follows the subject now gets it, live or when it comes back within the retention; and so
%% does each user of `{to, Users}', and nobody else.
-spec publish(whom(), term()) ->
    {ok, #{id := id(), sessions := non_neg_integer()}} | {error, halley_router:error()}.
publish(Whom, Data) ->
    halley_router:publish(Whom, Data, #{}).

%% Options:
%%   id    the publisher chooses the event's id. The same id again, within the retention, gives
%%         the first answer again, whichever subject it names, and no second event.
%%   ack   `disk', or `memory': then it returns when the event is on its way to the sessions that
%%         are there, some milliseconds earlier, and a brain that is killed just then forgets it.
%%   keep  `true': it is its subject's kept value from now on, beyond the retention; with the data
%%         `null' there is none any more.
%% `overloaded', `disk_full', `too_many_kept', `too_many_own_kept': nothing was accepted.
%% `unavailable', `history_failed': it may have been sent; publish it again with the same id to be
%% sure.
-spec publish(whom(), term(), halley_router:opts()) ->
    {ok, #{id := id(), sessions := non_neg_integer()}} | {error, halley_router:error()}.
publish(Whom, Data, Opts) ->
    halley_router:publish(Whom, Data, Opts).

%% Publishes a batch; results come in the order of the items, and each item fails alone.
-spec publish_many([halley_router:item()]) ->
    [{ok, #{id := id(), sessions := non_neg_integer()}} | {error, halley_router:error()}].
publish_many(Items) ->
    halley_router:publish_many(Items).

%% Adds follows; when it returns, they are on disk and in effect for live sessions.
-spec follow([{User :: id(), Subject :: id()}]) -> {ok, map()} | {error, term()}.
follow(Pairs) ->
    halley_follows:follow(Pairs).

-spec follow(User :: id(), Subject :: id()) -> ok | {error, term()}.
follow(User, Subject) ->
    one(halley_follows:follow([{User, Subject}])).

-spec unfollow([{User :: id(), Subject :: id()}]) -> {ok, map()} | {error, term()}.
unfollow(Pairs) ->
    halley_follows:unfollow(Pairs).

-spec unfollow(User :: id(), Subject :: id()) -> ok | {error, term()}.
unfollow(User, Subject) ->
    one(halley_follows:unfollow([{User, Subject}])).

one({ok, #{errors := [{_, Reason} | _]}}) -> {error, Reason};
one({ok, _}) -> ok;
one({error, _} = Error) -> Error.

%% All followers of a subject. For subjects with very many, page with
%% `halley_follows:followers/3'.
-spec followers(Subject :: id()) -> [User :: id()].
followers(Subject) ->
    all(fun(After) -> halley_follows:followers(Subject, After, ?PAGE) end, start).

-spec following(User :: id()) -> [Subject :: id()].
following(User) ->
    all(fun(After) -> halley_follows:following(User, After, ?PAGE) end, start).

all(Page, After) ->
    case Page(After) of
        {Ids, done} -> Ids;
        {Ids, Next} -> Ids ++ all(Page, Next)
    end.

%% Makes the calling process a session of the user.
-spec login(User :: id()) -> ok | {error, too_many_sessions | too_many_ids | {bad_id, term()}}.
login(User) ->
    login(User, self()).

%% Makes a process of this node a session of the user. A process may be a session of several users.
-spec login(User :: id(), pid()) ->
    ok | {error, too_many_sessions | too_many_ids | {bad_id, term()}}.
login(User, Pid) when node(Pid) =:= node() ->
    case halley_ids:intern([User]) of
        {ok, [Number]} ->
            case halley_sessions:login(Number, Pid) of
                ok -> ok;
                full -> {error, too_many_sessions};
                gone -> login(User, Pid)
            end;
        {error, _} = Error -> Error
    end.

%% Ends all sessions that the process is.
-spec logout(pid()) -> ok.
logout(Pid) ->
    halley_directory:logout(Pid).

%% Where a user is who lacks nothing so far: a process takes it before it reads for the first time.
-spec cursor() -> cursor().
cursor() ->
    halley_missed:now().

%% What the user missed since the cursor: the oldest 100 items at most, in order, and the cursor
%% after them. It waits until all that was published before the call is on disk, 10 s at most, after
%% which it is `{error, unavailable}'. `more': read again at once.
-spec read(User :: id(), cursor()) ->
    {ok, #{items := [halley_missed:item()], cursor := cursor(), more := boolean()}}
    | {error, unavailable}.
read(User, Cursor) ->
    read(User, Cursor, #{}).

%% Options:
%%   events_max  the most events of one call, 100 without it
%%   as          `data', or `json': then an event is #{id, cursor, json}, with the whole event as
%%               one line of JSON, for code that passes it on
-spec read(User :: id(), cursor(), halley_missed:options()) ->
    {ok, #{items := [halley_missed:item()], cursor := cursor(), more := boolean()}}
    | {error, unavailable}.
read(User, Cursor, Options) ->
    halley_missed:read(User, Cursor, Options).

%% Whether a user is online, and with how many sessions. An unknown user has none.
-spec presence(User :: id()) -> #{user := id(), sessions := non_neg_integer()}.
presence(User) ->
    #{user => User, sessions => length(halley_sessions:of_user(User))}.

%% Closes the user's sessions: connections are closed by their edge soon after this returns;
%% processes are logged out at once and get `{halley_closed, User}'. Returns how many there were,
%% with those that are still sent what they missed, which `presence/1' doesn't count yet.
-spec close_sessions(User :: id()) -> {ok, non_neg_integer()}.
close_sessions(User) ->
    {ok, halley_sessions:close_user(User, <<"closed by the server">>)}.

%% Forgets a user: closes its sessions, ends its follows both ways, and hides from everybody what
%% was published about it, or to it alone, until then. When it returns `ok', that is on disk. After
%% an error a part may be done; do it again. `too_many_forgotten': nothing was done.
-spec forget(User :: id()) ->
    {ok, halley_forgetting:forgotten()}
    | {error, too_many_forgotten | halley_follows:failure() | halley_follows:error()
              | history_failed}.
forget(User) ->
    halley_forgetting:run(User).
