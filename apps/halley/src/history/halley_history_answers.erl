%% The answers to publishers that wait for a group of the history's log: one to each caller, and one
%% to each process that posted events (`halley_posts'), for all of its posts in the group.
-module(halley_history_answers).

-export([tell/1]).

%% `false': it is on disk.
-type outcome() :: halley_history_atomics:refusing() | overloaded.
-type posted() :: #{pid() => [[halley_history:answer()]]}.

-spec tell([{halley_history_group:item(), outcome()}]) -> ok.
tell(Items) ->
    Posted = lists:foldl(fun item/2, #{}, Items),
    maps:foreach(fun(Pid, Answers) -> Pid ! {posted, lists:append(Answers)} end, Posted).

-spec item({halley_history_group:item(), outcome()}, posted()) -> posted().
item({{append, _, _, _, Replies}, Outcome}, Posted) ->
    lists:foldl(fun(Reply, Acc) -> reply(Reply, Outcome, Acc) end, Posted, Replies);
item({{changed, _, _, _, Alias}, Outcome}, Posted) ->
    _ = Alias ! {Alias, answer(written, Outcome)},
    Posted;
item({{mark, _, _}, _}, Posted) ->
    Posted.

reply(none, _, Posted) ->
    Posted;
reply({posts, Pid, Answers}, Outcome, Posted) ->
    Told = [{Tag, answer(Answer, Outcome)} || {Tag, Answer} <- Answers],
    Posted#{Pid => [Told | maps:get(Pid, Posted, [])]};
reply({From, Answer}, Outcome, Posted) ->
    gen_server:reply(From, answer(Answer, Outcome)),
    Posted.

answer(Answer, false) -> Answer;
answer(_, failed) -> {error, history_failed};
answer(_, Reason) -> {error, Reason}.
