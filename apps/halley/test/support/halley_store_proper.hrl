%% The macros of PropEr that the properties here use, since Debian's erlang-proper comes without
%% its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(LET(X, Type, Generator), proper_types:bind(Type, fun(X) -> Generator end, false)).

-import(proper_types, [frequency/1, list/1, oneof/1, range/2, resize/2]).
