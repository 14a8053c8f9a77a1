%% Subscriptions of sessions, within the rights of their tokens.
%%
%%   PUT    /v1/me/subscriptions/S   the WebSocket that says so is subscribed to S; DELETE ends that
%%
%% It is what a WebSocket's operations `subscribe' and `unsubscribe' do (http.md 18, 21). A session
%% belongs to its link, so the link's process does it (`operate/2'; `prepare/3' where a worker of an
%% earlier build sends the operation as a request), and a request that belongs to no session is
%% refused. `subscribable/2' judges the subscriptions with which a session opens.
%%
%% With `?last=N' the answer has the newest N events about S as well, the oldest first: a page of
%% what was before up to where the subscription begins. That makes work, so it has a process.
%%
%% A subject after a byte that no id has stands for its presence (`halley_presence_keys'): that
%% needs the right `presence' and a pattern in `presence.subjects'.
%%
%% `presence=*' is for those of all whom the user follows whom the rights let it see: where the
%% worker keeps whom (link.md 19), any right is enough, else it is one to everything.
%%
%% A session of the API listener that follows the server's status (`halley_own:status/0') comes with
%% a server key in place of rights, after a byte that no text of rights begins with (link.md 17): it
%% needs the rights of `GET /v1/status'. To all others that subject is no id.
%%
%% Only `halley_subscriptions' knows the subscriptions, and nothing of them is on disk.
-module(halley_api_subscriptions_h).
-behaviour(halley_api).

-export([handle/3, prepare/3, operate/2, operate_apart/2, subscribable/2, lost/3, view/1]).
-export_type([result/0]).

%% With one event more it fits what a worker takes for the answer to an operation.
-define(BYTES_MAX, 262144).
%% What stands for a session's state among what it has.
-define(STATE_NAME, <<2>>).
%% Before a server key.
-define(OF_SERVERS, 3).

-type result() :: added | already | too_many_of_session | too_many
                | removed | absent | no_session.

-spec handle(put | delete, [binary()], halley_api:request()) -> halley_api:response().
handle(put, [Subject], #{query := Query, headers := #{<<"halley-user">> := User} = Headers,
                         subscribe := _} = Request) ->
    Rights = maps:get(<<"halley-rights">>, Headers, <<>>),
    Last = proplists:get_value(<<"last">>, Query, <<>>),
    halley_api_outcome:response(newest(Subject, {User, Rights}, Last, Request));
handle(_, _, _) ->
    halley_api_outcome:response(answer(no_session)).

-spec operate_apart(subscribe | unsubscribe, halley_requests:operation()) ->
    halley_api_outcome:outcome().
operate_apart(subscribe, #{user := User, rights := Rights, subject := Subject, last := Last,
                           subscribe := _} = Operation) ->
    newest(Subject, {User, Rights}, integer_to_binary(Last), Operation);
operate_apart(_, _) ->
    answer(no_session).

%% Subscribes, and gives the newest events. What asks has the link's part of it.
newest(Subject, {User, Rights}, Last, #{subscribe := Subscribe} = Asking) ->
    case {subscribable(Rights, [Subject]),
          halley_api_reply:number(<<"last">>, Last, halley_limits:get(last_events_max))} of
        {ok, {ok, Count}} ->
            ok = halley_api_past_h:turn({subscriber, User}, Asking),
            subscribed(Subscribe(User, Subject), Subject, Count);
        {{error, _} = Refused, _} -> Refused;
        {_, {error, _} = Refused} -> Refused
    end.

%% The past ends where the subscription begins.
subscribed({Result, Heads}, Subject, Count) when Result =:= added; Result =:= already ->
    Before = halley_cursor:encode(halley_history:store(), halley_clock:wall_s(), Heads),
    Added = case Result of added -> {1, 0}; already -> {0, 1} end,
    BytesMax = min(?BYTES_MAX, halley_limits:get(past_bytes_max)),
    Page = halley_past:page(Subject, Before, none, Count, BytesMax),
    halley_api_past_h:newest(Added, Subject, Page);
subscribed({Refused, _}, _, _) ->
    answer(Refused).

-spec prepare(put | delete, [binary()], halley_api:request()) -> later | halley_api:prepared().
prepare(Method, [Subject], #{query := Query} = Request) ->
    case Method =:= put andalso lists:keymember(<<"last">>, 1, Query) of
        true -> later;
        false -> halley_api_outcome:map(fun halley_api_outcome:response/1,
                                        at_once(Method, Subject, Request))
    end.

at_once(Method, Subject, #{headers := #{<<"halley-user">> := User} = Headers}) ->
    Rights = maps:get(<<"halley-rights">>, Headers, <<>>),
    case {Method, Headers} of
        {put, #{<<"halley-view">> := _}} -> watch(User, Subject, Rights);
        {put, _} -> one(add, User, Subject, Rights);
        {delete, _} -> one(remove, User, Subject, Rights)
    end.

%% Who sends operations keeps whom a session may see.
-spec operate(subscribe | unsubscribe, halley_requests:operation()) ->
    later | halley_api_outcome:prepared().
operate(subscribe, #{last := Last}) when Last > 0 ->
    later;
operate(subscribe, #{user := User, rights := Rights, subject := Subject}) ->
    case halley_presence_keys:subject(Subject) of
        {presence, <<"*">>} -> watch(User, Subject, Rights);
        _ -> one(add, User, Subject, Rights)
    end;
operate(unsubscribe, #{user := User, rights := Rights, subject := Subject}) ->
    one(remove, User, Subject, Rights).

one(Change, User, Subject, Rights) ->
    case judged(Change, Subject, Rights) of
        ok -> {subscription, Change, User, Subject, fun answer/1};
        {error, _} = Refused -> {answer, Refused}
    end.

%% All whom the user follows, of a worker that keeps whom of them it may see.
watch(User, Subject, Rights) ->
    View = view(Rights),
    case subscribable(Rights, [Subject | halley_presence_views:pieces(View)]) of
        ok -> {subscription, watch, User, View, fun answer/1};
        {error, _} = Refused -> {answer, Refused}
    end.

%% To end a subscription there is no right needed.
judged(add, Subject, Rights) -> subscribable(Rights, [Subject]);
judged(remove, _, _) -> ok.

-spec subscribable(Rights :: binary(), [binary()]) -> ok | {error, halley_api_error:error()}.
subscribable(<<?OF_SERVERS, Authorization/binary>>, [Subject]) ->
    case Subject =:= halley_own:status() andalso halley_api_access:judge_key(read, Authorization) of
        ok -> ok;
        {error, Error, _} -> {error, Error};
        false -> {error, {400, <<"bad_subject">>, "a server key opens no such session"}}
    end;
subscribable(Text, All) ->
    {View, Subjects} = halley_presence_views:split(All),
    each(Subjects, rights(Text), View =/= []).

-spec view(Rights :: binary()) -> halley_presence_views:view().
view(Text) -> halley_api_rights:view(rights(Text)).

%% Of what a session of this user has, what these rights don't allow. A session of the API listener
%% has no rights that could change.
-spec lost(Rights :: binary(), User :: binary(), [binary()]) -> [binary()].
lost(Text, User, Said) ->
    Rights = rights(Text),
    [One || One <- Said, is_lost(One, User, Rights)].

is_lost(?STATE_NAME, User, Rights) ->
    halley_api_rights:judge(state, User, Rights) =/= ok;
is_lost(Subject, _, Rights) ->
    allowed(halley_presence_keys:subject(Subject), Subject, Rights, true) =/= ok.

%% A link's process judges one session after the other, mostly by the same text: it keeps what it
%% read last.
rights(Text) ->
    case get(?MODULE) of
        {Text, Rights} ->
            Rights;
        _ ->
            Kept = binary:copy(Text),
            Rights = halley_api_rights:parse(Kept),
            _ = put(?MODULE, {Kept, Rights}),
            Rights
    end.

each([], _, _) ->
    ok;
each([Subject | Subjects], Rights, HasView) ->
    case allowed(halley_presence_keys:subject(Subject), Subject, Rights, HasView) of
        ok -> each(Subjects, Rights, HasView);
        {error, _} = Error -> Error
    end.

allowed(none, Subject, Rights, _) ->
    case halley_api_id:check(Subject, <<"subject">>) of
        {ok, Id} -> halley_api_rights:judge(subscribe, Id, Rights);
        {error, _} = Error -> Error
    end;
allowed({presence, Subject}, _, Rights, HasView) ->
    case halley_api_id:check(Subject, <<"presence">>) of
        {ok, Id} ->
            case halley_presence_keys:may(Id) of
                true -> may_see(Id, Rights, HasView);
                false -> {error, {400, <<"presence_off">>, not_told(Id)}}
            end;
        {error, _} = Error ->
            Error
    end.

%% `*' is no subject here but all whom the user follows.
may_see(<<"*">>, Rights, true) -> halley_api_rights:judge_any(presence, Rights);
may_see(<<"*">>, Rights, false) -> halley_api_rights:judge_all(presence, Rights);
may_see(Subject, Rights, _) -> halley_api_rights:judge(presence, Subject, Rights).

not_told(Subject) ->
    ["nobody is told of the presence of ", Subject, ": presence.subjects doesn't have it; "
     "GET /v1/me/subjects/S/presence says who is there"].

answer(added) -> counted(<<"added">>, 1, <<"already">>, 0);
answer(already) -> counted(<<"added">>, 0, <<"already">>, 1);
answer(removed) -> counted(<<"removed">>, 1, <<"absent">>, 0);
answer(absent) -> counted(<<"removed">>, 0, <<"absent">>, 1);
answer(Refused) -> {error, refusal(Refused)}.

counted(Done, N, NotDone, M) ->
    {ok, jiffy:encode({[{Done, N}, {NotDone, M}]})}.

refusal(too_many_of_session) ->
    Max = integer_to_list(halley_limits:get(subscriptions_per_session_max)),
    {400, <<"too_many_subscriptions">>,
     ["a session is subscribed to ", Max, " subjects at most "
      "(limits.subscriptions_per_session_max); unsubscribe from some first"]};
refusal(too_many) ->
    {503, <<"too_many_subscriptions">>,
     "all sessions together have as many subscriptions as they may; raise "
     "limits.subscriptions_max"};
refusal(no_session) ->
    {409, <<"no_session">>,
     "a subscription belongs to a session: say {\"op\":\"subscribe\",\"subject\":...} on a "
     "WebSocket, or open the stream with ?subjects="}.
