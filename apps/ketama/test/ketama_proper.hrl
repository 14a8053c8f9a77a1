%% What the properties here use of PropEr, since Debian's erlang-proper comes without its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(LET(X, Type, Generator), proper_types:bind(Type, fun(X) -> Generator end, false)).
-define(SUCHTHAT(X, Type, Condition),
        proper_types:add_constraint(Type, fun(X) -> Condition end, true)).

-import(proper_types, [binary/0, frequency/1, list/1, oneof/1, range/2, resize/2, vector/2]).
