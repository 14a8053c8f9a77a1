%% PostgreSQL: calls that give a reference at once, and the answer in parts, as messages `{C, Ref,
%% Part}': `{columns, _}', `{types, _}', `no_data', `{data, Row}', `{complete, _}', `suspended',
%% `{error, _}', and `done' after the last of a query.
%%
%% Requests don't wait for each other (pipelining). `epgsql' has the same calls, and says what they
%% mean; the API is that of epgsql 4.8.
-module(epgsqli).

-define(ANSWER, incremental).
-include("epgsql_async.hrl").
