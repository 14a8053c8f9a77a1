%% Requests that an edge hands on: the seam between the link, which has them, and the application
%% that answers them, which implements this behaviour. The link finds the module by the environment
%% (`halley_edge', `handler').
-module(halley_requests).

-export_type([request/0, listener/0, body/0, response/0, wish/0, told/0, change/0, changed/0]).

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
%% What the link does before the request can be answered: publish an event; subscribe the session
%% of this user, <<>> for a visitor, to a subject, or no longer; take its state; or tell it of those
%% of all whom the user follows whom it may see.
-type wish() :: {publish, halley_router:item(), told(halley_router:result())}
              | {subscription, change(), User :: binary(), halley_id:id() | State :: binary(),
                 told(changed())}
              | {subscription, watch, User :: binary(), halley_presence_views:view(),
                 told(changed())}.
-type told(Result) :: fun((Result) -> response()).
-type told() :: told(halley_router:result() | changed()).
-type change() :: add | remove | state.
-type changed() :: added | already | too_many_of_session | too_many | removed | absent | stated
                 | no_session.

%% In a process of the request's own: it may wait, and if it dies it dies alone.
-callback handle(request()) -> response().

%% Of small requests that are whole and whose method may change something, in the link's own
%% process, which serves its other requests as well: it waits for nothing. `later': it is for
%% `handle/1', and nothing was done yet.
-callback prepare(request()) -> later | {answer, response()} | wish().

%% Whether a session with these rights may be subscribed to these subjects when it opens.
-callback subscribable(Rights :: binary(), [halley_id:id()]) ->
    ok | {error, {Status :: 400..599, Code :: binary(), Message :: iodata()}}.

%% Of what a session of this user has, <<>> for a visitor, what these rights don't allow.
-callback lost(Rights :: binary(), User :: binary(), [binary()]) -> [binary()].

%% Whom these rights let a session see that is told of all whom its user follows.
-callback view(Rights :: binary()) -> halley_presence_views:view().

-optional_callbacks([prepare/1, subscribable/2, lost/3, view/1]).
