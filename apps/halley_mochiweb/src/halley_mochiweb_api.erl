%% Requests of servers, which the module of the environment's `handler' answers (`halley_requests').
-module(halley_mochiweb_api).
-export([handle/1, target/1]).

-define(BODY_BYTES_MAX, 16777216).

-spec handle(Request :: tuple()) -> term().
handle(Request) ->
    {ok, Handler} = application:get_env(halley_mochiweb, handler),
    {Path, Query} = target(Request),
    Method = mochiweb_request:get(method, Request),
    Body = mochiweb_request:recv_body(?BODY_BYTES_MAX, Request),
    Headers = [{string:lowercase(text(Name)), text(Value)}
               || {Name, Value} <- mochiweb_headers:to_list(
                                       mochiweb_request:get(headers, Request))],
    Asked = #{method => text(Method), path => Path, query => Query, listener => api,
              headers => maps:from_list(Headers), body => {full, text([Body || is_binary(Body)])},
              link => whereis(halley_mochiweb_app), has_room => fun() -> true end},
    %% A handler may keep what it has until its process ends, such as a turn.
    {_, Monitor} = spawn_monitor(fun() -> exit({answer, Handler:handle(Asked)}) end),
    {Status, Answered, Content} = receive
        {'DOWN', Monitor, process, _, {answer, Answer}} -> Answer;
        {'DOWN', Monitor, process, _, _} -> {500, [], <<"the request failed in the server\n">>}
    end,
    mochiweb_request:respond(
        {Status, [{binary_to_list(N), text(Value)} || {N, Value} <- Answered], Content}, Request).

text(Atom) when is_atom(Atom) -> atom_to_binary(Atom);
text(Text) -> iolist_to_binary(Text).

%% The decoded segments of the path, and the query.
-spec target(Request :: tuple()) -> {[binary()], [{binary(), binary()}]}.
target(Request) ->
    [Path | _] = string:split(mochiweb_request:get(raw_path, Request), "?"),
    {[text(mochiweb_util:unquote(Segment)) || Segment <- tl(string:split(Path, "/", all))],
     [{text(Name), text(Value)} || {Name, Value} <- mochiweb_request:parse_qs(Request)]}.
