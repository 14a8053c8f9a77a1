%% The two macros of PropEr that the properties here use, since Debian's erlang-proper comes without
%% its header.
-define(FORALL(X, Type, Property), proper:forall(Type, fun(X) -> Property end)).
-define(LET(X, Type, Generator), proper_types:bind(Type, fun(X) -> Generator end, false)).

-import(proper_types, [binary/0, byte/0, list/1, non_empty/1, non_neg_integer/0, oneof/1, range/2,
                       vector/2]).
