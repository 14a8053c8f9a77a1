%% PostgreSQL: calls that give a reference at once, and the whole answer as a message
%% `{C, Ref, Answer}', where `Answer' is what `epgsql' gives.
%%
%% Requests don't wait for each other (pipelining). `epgsql' has the same calls, and says what they
%% mean; the API is that of epgsql 4.8.
-module(epgsqla).

-define(ANSWER, cast).
-include("epgsql_async.hrl").
