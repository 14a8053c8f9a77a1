%% The pages of subscribed sessions against a model.
-module(prop_halley_subscriptions).

-export([prop_words/0]).

-import(proper_types, [range/2, list/1, resize/2, oneof/1]).

-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).

%% Whatever comes and goes in whatever order, each subject has its words, ascending, none twice; and
%% nothing is left of a subject without any.
prop_words() ->
    ?FORALL(Steps, resize(1000, list({oneof([add, add, remove]), range(1, 3), range(1, 3),
                                      range(1, 600)})),
            begin
                {Owner, Monitor} = spawn_monitor(fun() -> exit({good, holds(Steps)}) end),
                receive {'DOWN', Monitor, process, Owner, Why} -> Why =:= {good, true} end
            end).

holds(Steps) ->
    ok = halley_subscriptions_table:new(),
    Model = lists:foldl(fun({What, Subject, Slot, Conn}, Known) ->
        Word = Slot bsl 48 bor Conn,
        ok = halley_subscriptions_table:What(<<Subject>>, Word),
        Words = maps:get(Subject, Known, []),
        Known#{Subject => case What of
                              add -> ordsets:add_element(Word, Words);
                              remove -> ordsets:del_element(Word, Words)
                          end}
    end, #{}, Steps),
    Good = lists:all(fun({Subject, Words}) ->
        halley_subscriptions_table:words(<<Subject>>) =:= Words
            andalso lists:all(fun(Slots) ->
                halley_subscriptions_table:words(<<Subject>>, maps:from_keys(Slots, []))
                    =:= [Word || Word <- Words, lists:member(Word bsr 48, Slots)]
            end, [[], [0], [1], [2, 3], [3, 4], [1, 2, 3]])
    end, maps:to_list(Model)),
    [ok = halley_subscriptions_table:remove(<<Subject>>, Word)
     || {Subject, Words} <- maps:to_list(Model), Word <- Words],
    Good andalso ets:info(halley_subscriptions_table, size) =:= 0.
