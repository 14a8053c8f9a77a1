%% What the properties here use of PropEr, since Debian's erlang-proper comes without its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(LET(X, Type, Generator), proper_types:bind(Type, fun(X) -> Generator end, false)).
