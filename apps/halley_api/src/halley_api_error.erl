%% Errors as clients see them: a status, a stable code for programs, a message for people.
%%
%% `{"error":{"code":…,"message":…}}' is the form everywhere: as a response's body and, in the
%% answer to a body of many lines, in the place of one line's result. The message says what was
%% wrong and what would be right. This module also says which answer each reason of the core
%% becomes.
-module(halley_api_error).

-export([response/1, response/2, retry_after_ms/1, json/1, member/2, reason/1, bad_id/2,
         bad_json/1, closed/0]).
-export_type([error/0]).

-include("halley_api_limits.hrl").

-type error() :: {Status :: 400..599, Code :: binary(), Message :: iodata()}.

-spec response(error()) -> halley_api:response().
response(Error) ->
    response(Error, []).

%% With more headers, such as Allow.
-spec response(error(), [{binary(), iodata()}]) -> halley_api:response().
response({Status, Code, _} = Error, Headers) ->
    {Status, [{<<"content-type">>, <<"application/json">>} | retry_after(Status, Code) ++ Headers],
     [json(Error), $\n]}.

%% Room on a disk takes longer than a queue.
retry_after(503, Code) when Code =:= <<"disk_full">>; Code =:= <<"history_failed">>;
                            Code =:= <<"store_failed">>; Code =:= <<"data_dir_moved">> ->
    [{<<"retry-after">>, integer_to_binary(?RETRY_AFTER_DISK_S)}];
retry_after(503, _) ->
    [{<<"retry-after">>, integer_to_binary(?RETRY_AFTER_S)}];
retry_after(_, _) ->
    [].

%% The header, in whole seconds.
-spec retry_after_ms(Ms :: non_neg_integer()) -> {binary(), binary()}.
retry_after_ms(Ms) ->
    {<<"retry-after">>, integer_to_binary(max(1, (Ms + 999) div 1000))}.

%% The error as one line of JSON.
-spec json(error()) -> iolist().
json(Error) ->
    ["{\"error\":{", members(Error), "}}"].

members({_, Code, Message}) ->
    ["\"code\":\"", Code, "\",\"message\":", halley_api_json:string(Message)].

%% What it is as the member `error' of the answer to an operation (http.md 18.3), where its response
%% would have these headers besides.
-spec member(error(), [{binary(), iodata()}]) -> iolist().
member({Status, Code, _} = Error, Headers) ->
    [${, members(Error),
     case lists:keyfind(<<"retry-after">>, 1, retry_after(Status, Code) ++ Headers) of
         {_, Seconds} -> [",\"retry_after_s\":", Seconds];
         false -> []
     end, $}].

-spec bad_json(iodata()) -> error().
bad_json(What) ->
    {400, <<"bad_json">>, What}.

%% `Member' is where the id stood: `user', `subject' and so on.
-spec bad_id(binary(), halley_id:reason()) -> error().
bad_id(Member, Reason) ->
    {400, <<"bad_", Member/binary>>, ["bad ", Member, ": ", halley_id:explain(Reason)]}.

%% The client left before the body's end: an answer that nobody reads.
-spec closed() -> error().
closed() ->
    {400, <<"bad_body">>, "the body ended early"}.

%% What a reason of the core's functions becomes.
-spec reason(term()) -> error().
reason(overloaded) ->
    {503, <<"overloaded">>, "nothing was accepted: the server is overloaded; try again soon"};
reason(unavailable) ->
    {503, <<"unavailable">>,
     "it isn't known whether this was done; try again soon with the same id"};
reason(disk_full) ->
    {503, <<"disk_full">>,
     ["nothing was accepted, the disk is full: free space in data.dir = ", data_dir(),
      ", or set history.bytes lower and start again"]};
reason(Failed) when Failed =:= history_failed; Failed =:= failed ->
    {503, <<"history_failed">>,
     ["the history in data.dir = ", data_dir(), " cannot be written, the server's log says why; "
      "it isn't known whether this was done; try again with the same id"]};
reason(data_dir_moved) ->
    {503, <<"data_dir_moved">>,
     ["data.dir = ", data_dir(), " is no longer the directory that the server opened: put it "
      "back, or start the server again; it isn't known whether this was done; try again with "
      "the same id"]};
reason(data_too_large) ->
    Max = integer_to_list(halley_limits:get(event_data_bytes_max)),
    {413, <<"data_too_large">>, ["an event's data has at most ", Max, " bytes of JSON"]};
reason({bad_id, Member, Reason}) when Member =:= user; Member =:= subject ->
    bad_id(atom_to_binary(Member), Reason);
reason({bad_id, _}) ->
    {400, <<"bad_id">>, "an id is 1 to 255 bytes of UTF-8 without control characters"};
reason({unknown_id, Id}) ->
    {400, <<"bad_after">>, ["after: there is no id ", Id, "; take `next' of the page before"]};
reason(self) ->
    {400, <<"self">>, "a user follows itself, always"};
reason(too_many_follows) ->
    Max = integer_to_list(halley_limits:get(follows_per_user_max)),
    {409, <<"too_many_follows">>,
     ["the user follows ", Max, " subjects, as many as it may; unfollow some first"]};
reason({bad_data, _}) ->
    {400, <<"bad_data">>, "the data is not JSON"};
reason({store_failed, _}) ->
    {503, <<"store_failed">>,
     ["follows cannot be written in data.dir = ", data_dir(), ", the server's log says why; it "
      "isn't known whether this was done; try again"]};
reason(too_many_ids) ->
    {507, <<"too_many_ids">>,
     "follows have no room for new ids: the last places of limits.ids_max are for users that "
     "connect (limits.ids_for_sessions_percent), and those before them for follows that servers "
     "ask for (limits.servers_share_percent); ids that are known already still work"};
reason({too_many_new_ids, WaitMs}) ->
    {429, <<"too_many_new_ids">>,
     ["a user may name ", integer_to_list(halley_limits:get(new_ids_per_user_max)),
      " ids that nobody used before in ",
      integer_to_list(halley_limits:get(new_ids_per_user_ms) div 1000),
      " seconds; the next one is allowed in ", integer_to_list((WaitMs + 999) div 1000),
      ". Ids that were used before can be followed meanwhile"]};
reason(Other) ->
    of_table(Other).

%% With store.backend = postgres.
of_table({not_of_table, Type}) ->
    {400, <<"not_of_table">>,
     ["follows are kept in a table of PostgreSQL, whose column has the type ", Type,
      ": an id must be the text that PostgreSQL makes of such a value"]};
of_table(refused_by_table) ->
    {409, <<"refused_by_table">>,
     "a rule of PostgreSQL's table of follows refuses this one; the server's log says which"};
of_table(followed_elsewhere) ->
    {409, <<"followed_elsewhere">>,
     "another table of postgres.follows has this follow, too, and Halley doesn't write that one: "
     "delete the row there"};
of_table(postgres_away) ->
    {503, <<"postgres_away">>,
     "nothing was done: PostgreSQL, which has the follows, is away, or doesn't take the change; "
     "the server's log says why; try again soon"};
of_table(postgres_unknown) ->
    {503, <<"postgres_unknown">>,
     "it isn't known whether PostgreSQL has committed this; to ask for the same again does no "
     "harm"};
of_table(postgres_late) ->
    {503, <<"postgres_late">>,
     "PostgreSQL has committed this, and it takes effect as soon as it has come back from there; "
     "to ask for the same again does no harm"};
of_table(Other) ->
    of_the_past(Other).

of_the_past(too_many_forgotten) ->
    {507, <<"too_many_forgotten">>,
     ["the history has traces of ", integer_to_list(halley_limits:get(forgotten_users_max)),
      " deleted users, as many as it may, and nothing was done: try again when history.retention "
      "has taken some, or raise limits.forgotten_users_max"]};
of_the_past(too_many_kept) ->
    {507, <<"too_many_kept">>,
     "kept values have as many bytes as they may, or users' have, as the last "
     "limits.servers_share_percent of the room are for servers: clear some by \"keep\":true with "
     "\"data\":null, or raise limits.kept_bytes_max, and history.bytes to at least eight times of "
     "it"};
of_the_past(too_many_own_kept) ->
    {409, <<"too_many_own_kept">>,
     ["the values that this user keeps have ",
      integer_to_list(halley_limits:get(user_share_percent_max)),
      " percent of the room for kept values, as much as one user's may: clear some of them by "
      "\"keep\":true with \"data\":null, or have limits.user_share_percent_max raised"]};
of_the_past(too_many_revocations) ->
    {507, <<"too_many_revocations">>,
     "whose tokens are revoked takes limits.revocations_bytes_max bytes, and nothing was done: "
     "take some back that are needed no longer (GET /v1/revocations), give them an \"until\", or "
     "raise the limit"};
of_the_past({bad_option, Option}) ->
    {400, <<"bad_option">>, ["bad option: ", atom_to_binary(Option)]};
of_the_past(_) ->
    {500, <<"internal">>, "the server failed to do this; its log says more"}.

data_dir() ->
    unicode:characters_to_binary(application:get_env(halley, data_dir, "data")).
