%% What the properties here use of PropEr, since Debian's erlang-proper comes without its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(LET(X, Type, Generator), proper_types:bind(Type, fun(X) -> Generator end, false)).

-import(proper_types, [binary/0, binary/1, byte/0, list/1, nat/0, oneof/1, range/2]).
