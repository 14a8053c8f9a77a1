%% Requests and operations that an edge hands on: the seam between the link, which has them, and the
%% application that answers them, which implements this behaviour. The link finds the module by the
%% environment (`halley_edge', `handler').
-module(halley_requests).

-export_type([request/0, listener/0, body/0, response/0, change/0, changed/0]).
-export_type([operation/0, what/0, outcome/0]).
-export_type([wish/0, wish/1, told/0, told/2]).

-type listener() :: public | api.
-type body() :: {full, binary()} | {stream, fun(() -> {ok, binary()} | done | {error, closed})}.
%% The path's segments and the query are decoded, names of headers are lower case. With `handle/1'
%% come what only a process of the request's own may use: `link', which stands for the edge when
%% pages take turns; `has_room', whether the edge takes more now; `subscribe', which subscribes the
%% session of the request and gives the heads of the history at that moment.
-type request() :: #{method := binary(), path := [binary()], query := [{binary(), binary()}],
                     headers := #{binary() => binary()}, listener := listener(),
                     body := body(), link => pid(), has_room => fun(() -> boolean()),
                     subscribe => fun((User :: binary(), halley_id:id()) ->
                                      {changed(), halley_cursor:vector()})}.
-type response() :: {Status :: 100..599, Headers :: [{binary(), iodata()}], Body :: iodata()}.
%% An operation of a WebSocket's client (link.md 20); a visitor's user is <<>>. `subject': of
%% `follow' to `unsubscribe'; after the byte 1 its presence is meant. `last': of `subscribe', how
%% many of the newest events come with the answer. `members': of `publish' and `state', names with
%% the JSON text of their values, as the client wrote it. With `operate_apart/1' come the same as
%% with `handle/1'.
-type operation() :: #{what := what(), user := binary(), rights := binary(),
                       subject := binary(), last := non_neg_integer(),
                       members := [{Name :: binary(), Text :: binary()}],
                       link => pid(), has_room => fun(() -> boolean()),
                       subscribe => fun((User :: binary(), halley_id:id()) ->
                                        {changed(), halley_cursor:vector()})}.
-type what() :: publish | follow | unfollow | subscribe | unsubscribe | state.
%% What the client gets as `ok', or as `error': JSON in UTF-8.
-type outcome() :: {ok | error, Json :: iodata()}.
%% What the link does before there is an answer: publish an event; subscribe the session of this
%% user, <<>> for a visitor, to a subject, or no longer; take its state; or tell it of those of all
%% whom the user follows whom it may see.
-type wish(Answer) :: {publish, halley_router:item(), told(halley_router:result(), Answer)}
                    | {subscription, change(), User :: binary(),
                       halley_id:id() | State :: binary(), told(changed(), Answer)}
                    | {subscription, watch, User :: binary(), halley_presence_views:view(),
                       told(changed(), Answer)}.
-type wish() :: wish(response()).
-type told(Result, Answer) :: fun((Result) -> Answer).
-type told() :: told(halley_router:result() | changed(), response() | outcome()).
-type change() :: add | remove | state.
-type changed() :: added | already | too_many_of_session | too_many | removed | absent | stated
                 | no_session.

%% In a process of the request's own: it may wait, and if it dies it dies alone.
-callback handle(request()) -> response().

%% Of small requests that are whole and whose method may change something, in the link's own
%% process, which serves its other requests as well: it waits for nothing. `later': it is for
%% `handle/1', and nothing was done yet.
-callback prepare(request()) -> later | {answer, response()} | wish().

%% Of small operations, in the link's own process, as `prepare/1'. `later': it is for
%% `operate_apart/1'.
-callback operate(operation()) -> later | {answer, outcome()} | wish(outcome()).

%% In a process of the operation's own, as `handle/1'.
-callback operate_apart(operation()) -> outcome().

%% Whether a session with these rights may be subscribed to these subjects when it opens.
-callback subscribable(Rights :: binary(), [halley_id:id()]) ->
    ok | {error, {Status :: 400..599, Code :: binary(), Message :: iodata()}}.

%% Of what a session of this user has, <<>> for a visitor, what these rights don't allow.
-callback lost(Rights :: binary(), User :: binary(), [binary()]) -> [binary()].

%% Whom these rights let a session see that is told of all whom its user follows.
-callback view(Rights :: binary()) -> halley_presence_views:view().

-optional_callbacks([prepare/1, operate/1, operate_apart/1, subscribable/2, lost/3, view/1]).
