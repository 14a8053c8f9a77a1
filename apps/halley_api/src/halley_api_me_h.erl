%% Users' own requests, on the public listener, within the rights of their tokens.
%%
%%   POST   /v1/me/events      publishes, as on the API listener; the answer has the event's id
%%   GET    /v1/me/follows     whom the user follows, page by page
%%   POST   /v1/me/follows     follows, `{"subject":S}' on each line; DELETE unfollows
%%   PUT    /v1/me/follows/S   follows S; DELETE unfollows
%%   GET    /v1/me/presence/S  whether S is online; one's own always
%%   GET    /v1/me/subjects/S/events  what was published about S before; about oneself always
%%
%% A WebSocket's operations `publish', `follow' and `unfollow' (http.md 18) are the same with one
%% event and one subject: `publication/3' and `follow/4' do both.
%%
%% Each line of a body is a message of its user, and counts as one (`halley_user_rate'). Events
%% after one too many aren't published; follows after it fail in their places.
%%
%% A user without the right to publish, or to follow, about any subject is refused at once: nothing
%% of the body is read.
%%
%% The answers don't say how many sessions there are: that is not a client's business. The `id' that
%% a client chooses for an event becomes `me:<user>:<id>'. So no client can take an id before a
%% server or another user does, which would make theirs a repetition.
-module(halley_api_me_h).
-behaviour(halley_api).

-export([handle/3, prepare/3, operate/2, operate_apart/2]).

-spec handle(get | post | put | delete, [binary()], halley_api:request()) -> halley_api:response().
handle(Method, What, Request) ->
    {User, Rights} = halley_api_access:user(Request),
    case reads_body(Method, What) of
        {yes, Action} ->
            case any_right(Action, Rights) of
                ok -> me(Method, What, User, Rights, Request);
                {error, Error} -> halley_api_error:response(Error)
            end;
        no ->
            me(Method, What, User, Rights, Request)
    end.

-spec prepare(post, [binary()], halley_api:request()) -> later | halley_api:prepared().
prepare(post, [<<"events">>], Request) ->
    case halley_api_events_h:is_one(Request) of
        true ->
            {User, Rights} = halley_api_access:user(Request),
            Read = fun(Publisher) -> halley_api_events_h:prepare(Request, Publisher) end,
            halley_api_outcome:map(fun halley_api_outcome:response/1,
                                   publication(User, Rights, Read));
        false ->
            later
    end.

-spec operate(publish, halley_requests:operation()) -> halley_api_outcome:prepared().
operate(publish, #{user := User, rights := Rights, members := Members}) ->
    Read = fun(Publisher) -> halley_api_events_h:one(Members, Publisher) end,
    publication(User, halley_api_rights:parse(Rights), Read).

-spec operate_apart(publish | follow | unfollow, halley_requests:operation()) ->
    halley_api_outcome:outcome().
operate_apart(publish, Operation) ->
    halley_api_events_h:published(operate(publish, Operation));
operate_apart(What, #{user := User, rights := Rights, subject := Subject}) ->
    Method = case What of follow -> put; unfollow -> delete end,
    follow(Method, Subject, User, halley_api_rights:parse(Rights)).

%% One event, which is read once it is known that there is a right to publish.
publication(User, Rights, Read) ->
    case any_right(publish, Rights) of
        ok -> Read(publisher(User, Rights));
        {error, _} = Refused -> {answer, Refused}
    end.

reads_body(post, [<<"events">>]) -> {yes, publish};
reads_body(Method, [<<"follows">>]) when Method =:= post; Method =:= delete -> {yes, follow};
reads_body(_, _) -> no.

me(post, [<<"events">>], User, Rights, Request) ->
    halley_api_events_h:publish(Request, publisher(User, Rights));
me(get, [<<"follows">>], User, _, Request) ->
    Read = fun(After, Limit) -> halley_follows_own:page(User, After, Limit) end,
    halley_api_reply:page(<<"following">>, Request, Read);
me(Method, [<<"follows">>], User, Rights, Request) ->
    Judge = fun(Subject) ->
        case admit(User, 1, byte_size(Subject)) of
            ok -> right(follow, Subject, Rights);
            {error, Error, _} -> {error, Error}
        end
    end,
    case halley_api_body:media_type(Request) of
        Type when Type =:= <<"application/x-ndjson">>; Type =:= <<"application/json">>;
                  Type =:= undeclared; Type =:= <<"text/plain">> ->
            Parse = fun(Block) -> halley_api_follow_lines:parse_own(Block, User, Judge) end,
            halley_api_follows_h:run(Method, Request, {lines, Parse}, apply_fun(User, Method));
        _ ->
            Message = "follows of one's own are application/x-ndjson",
            halley_api_error:response({415, <<"unsupported_media_type">>, Message})
    end;
me(Method, [<<"follow">>, Subject], User, Rights, _) ->
    halley_api_outcome:response(follow(Method, Subject, User, Rights));
me(get, [<<"presence">>, User], User, _, _) ->
    presence(User);
me(get, [<<"presence">>, Subject], _, Rights, _) ->
    case judged(presence, Subject, Rights) of
        ok -> presence(Subject);
        {error, Error} -> halley_api_error:response(Error)
    end;
me(get, [<<"past">>, User], User, _, Request) ->
    halley_api_past_h:page(User, {user, User}, Request);
me(get, [<<"past">>, Subject], User, Rights, Request) ->
    case judged(history, Subject, Rights) of
        ok -> halley_api_past_h:page(Subject, {user, User}, Request);
        {error, Error} -> halley_api_error:response(Error)
    end.

%% --- rights --------------------------------------------------------------------------------------

judged(Action, Subject, Rights) ->
    case halley_api_id:check(Subject, <<"subject">>) of
        {ok, Id} -> right(Action, Id, Rights);
        {error, _} = Error -> Error
    end.

right(Action, Subject, Rights) ->
    halley_api_rights:judge(Action, Subject, Rights).

any_right(Action, Rights) ->
    halley_api_rights:judge_any(Action, Rights).

%% --- rates ---------------------------------------------------------------------------------------

%% Each line is a message of its user (http.md 16.3), however many come in one request; and so is
%% each user that a private event is for.
admit(User, Messages, Bytes) ->
    case halley_user_rate:take(User, Messages, Bytes) of
        ok ->
            ok;
        {wait, Ms} ->
            halley_metrics:incr(user_too_often),
            {error, {429, <<"too_many_requests">>, too_often()},
             [halley_api_error:retry_after_ms(Ms)]}
    end.

too_often() ->
    ["a user may send ", integer_to_list(halley_limits:get(requests_per_user_per_s_max)),
     " messages in a second, each line is one, and each of its \"subjects\" and \"to\", and ",
     integer_to_list(halley_limits:get(bytes_per_user_per_s_max)),
     " bytes, and fill ", integer_to_list(halley_limits:get(history_per_user_percent_max)),
     " percent of history.bytes in history.retention: this one was not accepted; send it again "
     "later"].

%% --- events --------------------------------------------------------------------------------------

publisher(User, Rights) ->
    Judge = fun({Whom, Data, Opts}) ->
        case publishes(Whom, Rights) of
            ok -> own_id(User, Whom, Data, Opts);
            {error, _} = Error -> Error
        end
    end,
    Admit = fun(Bytes, Messages) -> admit(User, Messages, Bytes) end,
    {Admit, Judge, fun published/1}.

%% To all of them, or not at all.
publishes({to, Users}, Rights) ->
    case lists:dropwhile(fun(User) -> halley_api_rights:allows(to, User, Rights) end, Users) of
        [] -> ok;
        [User | _] -> right(to, User, Rights)
    end;
publishes({subjects, Subjects}, Rights) ->
    case lists:dropwhile(fun(S) -> halley_api_rights:allows(publish, S, Rights) end, Subjects) of
        [] -> ok;
        [Subject | _] -> right(publish, Subject, Rights)
    end;
publishes(Subject, Rights) ->
    right(publish, Subject, Rights).

own_id(User, Subject, Data, #{id := Id} = Opts) ->
    case halley_api_id:check(own_id(User, Id), <<"id">>) of
        {ok, Own} -> {ok, {Subject, Data, Opts#{id := Own, by => User}}};
        {error, _} = Error -> Error
    end;
own_id(User, Subject, Data, Opts) ->
    {ok, {Subject, Data, Opts#{by => User}}}.

%% A colon in the user's id is escaped, so that the next one is where the id begins.
own_id(User, Id) ->
    Escaped = << <<(escaped(C))/binary>> || <<C>> <= User >>,
    <<"me:", Escaped/binary, $:, Id/binary>>.

escaped($:) -> <<"%3A">>;
escaped($%) -> <<"%25">>;
escaped(C) -> <<C>>.

published(#{id := Id}) ->
    [<<"{\"id\":\"">>, halley_event:escape(Id), <<"\"}">>].

%% --- follows and presence ------------------------------------------------------------------------

%% The user follows the subject, or no longer.
follow(Method, Subject, User, Rights) ->
    case judged(follow, Subject, Rights) of
        ok -> followed(Method, (apply_fun(User, Method))([{User, Subject}]));
        {error, _} = Refused -> Refused
    end.

apply_fun(User, Add) when Add =:= put; Add =:= post ->
    fun(Pairs) -> halley_follows:follow_own(User, Pairs) end;
apply_fun(_, delete) ->
    fun halley_follows:unfollow/1.

followed(put, {ok, #{errors := [], added := Added, already := Already}}) ->
    {ok, jiffy:encode({[{<<"added">>, Added}, {<<"already">>, Already}]})};
followed(delete, {ok, #{errors := [], removed := Removed, absent := Absent}}) ->
    {ok, jiffy:encode({[{<<"removed">>, Removed}, {<<"absent">>, Absent}]})};
followed(_, {ok, #{errors := [{_, Reason} | _]}}) ->
    {error, halley_api_error:reason(Reason), retry_after(Reason)};
followed(_, {error, Reason}) ->
    {error, halley_api_error:reason(Reason)}.

retry_after({too_many_new_ids, WaitMs}) -> [halley_api_error:retry_after_ms(WaitMs)];
retry_after(_) -> [].

presence(User) ->
    #{sessions := Sessions} = halley:presence(User),
    halley_api_reply:json({[{<<"user">>, User}, {<<"online">>, Sessions > 0}]}).
