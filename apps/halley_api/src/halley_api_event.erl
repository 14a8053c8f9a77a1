%% One event of a request: `{"subject":S,"data":…,"id"?:…,"ack"?:…}' from JSON to what publishing
%% takes. A joint one has `"subjects":[S,…]' instead of the subject, a private one `"to":[U,…]'.
%%
%% A member that is not known, or is there twice, is an error rather than ignored: with a misspelt
%% `id' the event would silently have another id than its publisher thinks.
%%
%% Pure; it is called for every event and so makes one scan of the text. Of the data nothing is
%% decoded.
-module(halley_api_event).

-export([parse/1, of_members/1, messages/1]).
-export_type([event/0, parsed/0]).

%% `Data' is the text of the event's data on one line, as the publisher wrote it.
-type event() :: {halley:whom(), Data :: binary(), Opts :: halley_router:opts()}.

-type parsed() :: {ok, event()} | {error, halley_api_error:error()}.

-spec parse(binary()) -> parsed().
parse(Text) ->
    read(fun halley_api_json:texts/3, Text).

%% One that comes as its members, each with the text of its value.
-spec of_members([{Name :: binary(), Text :: binary()}]) -> parsed().
of_members(Members) ->
    read(fun halley_api_json:members/3, Members).

read(How, Event) ->
    DepthMax = halley_limits:get(event_data_depth_max),
    case How(Event, <<"data">>, DepthMax) of
        {ok, Members} -> members(Members, undefined, undefined, #{});
        {error, too_deep} -> {error, too_deep(DepthMax)};
        {error, What} -> {error, halley_api_error:bad_json(What)}
    end.

members([{<<"subject">>, Value} | Rest], undefined, Data, Opts) ->
    case halley_api_id:check(halley_api_json:value(Value), <<"subject">>) of
        {ok, Subject} -> members(Rest, Subject, Data, Opts);
        {error, _} = Error -> Error
    end;
members([{<<"to">>, Value} | Rest], undefined, Data, Opts) ->
    case users(halley_api_json:value(Value)) of
        {ok, Users} -> members(Rest, {to, Users}, Data, Opts);
        {error, _} = Error -> Error
    end;
members([{<<"subjects">>, Value} | Rest], undefined, Data, Opts) ->
    case subjects(halley_api_json:value(Value)) of
        {ok, Subjects} -> members(Rest, {subjects, Subjects}, Data, Opts);
        {error, _} = Error -> Error
    end;
members([{<<"data">>, Value} | Rest], Subject, undefined, Opts) ->
    members(Rest, Subject, halley_api_json:one_line(Value), Opts);
members([{<<"id">>, Value} | Rest], Subject, Data, Opts) when not is_map_key(id, Opts) ->
    case halley_api_id:check(halley_api_json:value(Value), <<"id">>) of
        {ok, Id} -> members(Rest, Subject, Data, Opts#{id => Id});
        {error, _} = Error -> Error
    end;
members([{<<"keep">>, Value} | Rest], Subject, Data, Opts) when not is_map_key(keep, Opts) ->
    case Value of
        <<"true">> -> members(Rest, Subject, Data, Opts#{keep => true});
        <<"false">> -> members(Rest, Subject, Data, Opts#{keep => false});
        _ -> bad_keep("true or false")
    end;
members([{<<"ack">>, Value} | Rest], Subject, Data, Opts) when not is_map_key(ack, Opts) ->
    case ack(halley_api_json:value(Value)) of
        {ok, Ack} -> members(Rest, Subject, Data, Opts#{ack => Ack});
        {error, _} = Error -> Error
    end;
members([{Member, _} | _], Whom, _, _)
        when Member =:= <<"to">>, not is_tuple(Whom); Member =:= <<"to">>, element(1, Whom) =/= to;
             Member =:= <<"subject">>, is_tuple(Whom);
             Member =:= <<"subjects">>, not is_tuple(Whom);
             Member =:= <<"subjects">>, element(1, Whom) =/= subjects ->
    both();
members([{Member, _} | _], _, _, _)
        when Member =:= <<"to">>; Member =:= <<"subject">>; Member =:= <<"subjects">>;
             Member =:= <<"data">>; Member =:= <<"id">>; Member =:= <<"ack">>;
             Member =:= <<"keep">> ->
    bad(["member ", Member, " is there twice"]);
members([{Member, _} | _], _, _, _) ->
    bad(["unknown member ", halley_api_json:string(Member)]);
members([], undefined, _, _) ->
    bad("member subject is missing, or subjects, or to");
members([], _, undefined, _) ->
    bad("member data is missing");
members([], Whom, _, #{keep := true}) when not is_binary(Whom) ->
    bad_keep("for an event about one subject, named by \"subject\"");
members([], Subject, Data, Opts) ->
    {ok, {Subject, Data, Opts}}.

too_deep(DepthMax) ->
    {400, <<"data_too_deep">>,
     ["the data has more than ", integer_to_list(DepthMax), " arrays and objects in one another: "
      "nest it less, or send the inner part as a string"]}.

both() ->
    bad("an event has one of subject, subjects and to: it is about one or about several, or for "
        "some users alone; publish two").

subjects([_ | _] = Subjects) ->
    Max = halley_limits:get(event_subjects_max),
    case length(Subjects) of
        N when N > Max ->
            {error, {413, <<"too_many_subjects">>,
                     ["an event is about at most ", integer_to_list(Max), " subjects, this one "
                      "about ", integer_to_list(N), ": publish it several times, each with an id "
                      "of its own, or have them follow one subject"]}};
        _ ->
            case [Error || Subject <- Subjects,
                           {error, Error} <- [halley_api_id:check(Subject, <<"subjects">>)]] of
                [] -> {ok, Subjects};
                [Error | _] -> {error, Error}
            end
    end;
subjects(_) ->
    {error, {400, <<"bad_subjects">>, ["bad subjects: it is a list of 1 to ",
                                       integer_to_list(halley_limits:get(event_subjects_max)),
                                       " subjects, such as [\"ann\",\"room/7\"]"]}}.

users([_ | _] = Users) ->
    Max = halley_limits:get(private_users_max),
    case length(Users) of
        N when N > Max ->
            {error, {413, <<"to_too_long">>,
                     ["a private event is for at most ", integer_to_list(Max), " users, this one "
                      "for ", integer_to_list(N), ": publish it several times, each with an id of "
                      "its own"]}};
        _ ->
            case [Error || User <- Users,
                           {error, Error} <- [halley_api_id:check(User, <<"to">>)]] of
                [] -> {ok, Users};
                [Error | _] -> {error, Error}
            end
    end;
users(_) ->
    {error, {400, <<"bad_to">>, ["bad to: it is a list of 1 to ",
                                 integer_to_list(halley_limits:get(private_users_max)),
                                 " users, such as [\"bob\",\"eve\"]"]}}.

%% As how many messages of its publisher it counts: as one for each of its users or subjects.
-spec messages(parsed()) -> pos_integer().
messages({ok, {{_, Several}, _, _}}) -> length(Several);
messages(_) -> 1.

bad_keep(Right) ->
    {error, {400, <<"bad_keep">>, ["bad keep: it is ", Right]}}.

ack(<<"disk">>) -> {ok, disk};
ack(<<"memory">>) -> {ok, memory};
ack(_) ->
    {error, {400, <<"bad_ack">>, "ack is \"disk\" (answered when the event is on disk, which it is "
                                 "without one) or \"memory\" (when it is on its way)"}}.

bad(What) ->
    Right = "; an event is {\"subject\":S,\"data\":any JSON,\"id\":optional,\"ack\":optional,"
            "\"keep\":optional}, one about several has \"subjects\":[subjects] in place of the "
            "subject, a private one \"to\":[users]",
    {error, {400, <<"bad_event">>, [What, Right]}}.
