%% PostgreSQL: calls that give a reference at once, and the whole answer as a message `{C, Ref,
%% Answer}', where `Answer' is the result of the same call of `epgsql'.
%%
%% Requests don't wait for each other (pipelining). `epgsql' has the same calls with their
%% descriptions; the API is that of epgsql 4.8.
-module(epgsqla).

-define(ANSWER, cast).
-include("epgsql_async.hrl").
