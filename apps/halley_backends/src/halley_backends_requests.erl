%% The requests of back ends: calls of `halley', with bounds, and answers whose atoms a back end
%% knows. It runs in the request's own process; any other request ends it.
-module(halley_backends_requests).

-export([run/1, reason/1]).

-define(ITEMS_MAX, 1000).
-define(PAIRS_MAX, 100000).
-define(PAGE_MAX, 1000).
-define(TEXT_CHARS_MAX, 200).
%% Those that `halley_remote:explain/1' has.
-define(WORDS, [overloaded, unavailable, bad_id, bad_to, bad_subjects, bad_option, bad_data,
                data_too_large, too_many_kept, disk_full, data_dir_moved, history_failed,
                store_failed, too_many_ids, too_many_new_ids, too_many_follows, self,
                too_many_sessions]).

-spec run(term()) -> term().
run({publish, Items}) when is_list(Items), length(Items) =< ?ITEMS_MAX ->
    Checked = [item(Item) || Item <- Items],
    Results = halley:publish_many([Item || {ok, Item} <- Checked]),
    [answer(Result) || Result <- in_place(Checked, Results)];
run({follow, Pairs}) -> changed(halley_follows:follow(pairs(Pairs)));
run({unfollow, Pairs}) -> changed(halley_follows:unfollow(pairs(Pairs)));
run({followers, Subject, After}) -> page(halley_follows:followers(id(Subject), After, ?PAGE_MAX));
run({following, User, After}) -> page(halley_follows:following(id(User), After, ?PAGE_MAX));
run({presence, User}) -> {ok, halley:presence(id(User))};
run({close_sessions, User}) -> halley:close_sessions(id(User));
run({forget, User}) -> answer(halley:forget(id(User))).

%% `{json, Text}' is taken as it is where it's published: that is for code which made it.
item({_, {json, _}, _}) -> {error, {bad_data, <<"{json, Text} is for code in Halley's own node">>}};
item({Whom, Data, Opts}) when is_map(Opts) ->
    case maps:keys(maps:without([id, ack, keep], Opts)) of
        [] -> {ok, {Whom, Data, Opts}};
        _ -> {error, bad_option}
    end.

in_place([{ok, _} | Items], [Result | Results]) -> [Result | in_place(Items, Results)];
in_place([{error, _} = Error | Items], Results) -> [Error | in_place(Items, Results)];
in_place([], []) -> [].

pairs(Pairs) when length(Pairs) =< ?PAIRS_MAX ->
    [{User, Subject} || {User, Subject} <- Pairs, is_binary(User), is_binary(Subject)].

id(Id) when is_binary(Id) -> Id.

page({Ids, Next}) -> {ok, Ids, Next}.

changed({ok, #{errors := Errors} = Done}) ->
    {ok, Done#{errors := [{Index, reason(Reason)} || {Index, Reason} <- Errors]}};
changed({error, _} = Error) ->
    answer(Error).

answer({error, Reason}) -> {error, reason(Reason)};
answer(Answer) -> Answer.

%% What a back end is told of a reason here: those that carry terms of anybody's making carry text,
%% and others than these are text alone.
-spec reason(term()) -> atom() | {atom(), binary() | non_neg_integer()}.
reason({bad_data, Text}) when is_binary(Text) -> {bad_data, Text};
reason({too_many_new_ids, WaitMs}) -> {too_many_new_ids, WaitMs};
reason(Reason) ->
    Word = case is_tuple(Reason) of true -> element(1, Reason); false -> Reason end,
    case {lists:member(Word, ?WORDS), Reason} of
        {true, Word} -> Word;
        {true, _} -> {Word, text(Reason)};
        {false, _} -> {other, text(Reason)}
    end.

text(Reason) ->
    Text = io_lib:format("~0tP", [Reason, 20], [{chars_limit, ?TEXT_CHARS_MAX}]),
    unicode:characters_to_binary(Text).
