%% A thing that PostgreSQL lacks, as the modules return it that look for it: in words, with the SQL
%% that adds it, and the role that is to run it.
-module(halley_postgres_finding).

-export([finding/2, by_hand/1]).
-export_type([finding/0]).

%% `how': run as it is; `restart': PostgreSQL has to be started again behind it; `hand': by a
%% person, as it can't be known what is right.
-type finding() :: #{what := iodata(), sql := iodata(), how := run | restart | hand}.

-spec finding(What :: iodata(), Sql :: iodata()) -> finding().
finding(What, Sql) -> #{what => What, sql => Sql, how => run}.

%% What is to be done stands in the words.
-spec by_hand(What :: iodata()) -> finding().
by_hand(What) -> #{what => What, sql => [], how => hand}.
