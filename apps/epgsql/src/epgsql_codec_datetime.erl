%% date, time, timetz, timestamp, timestamptz, interval; `epgsql_datetime' says what values they
%% have.
-module(epgsql_codec_datetime).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-export_type([pg_date/0, pg_time/0, pg_datetime/0, pg_interval/0]).

-type pg_date() :: epgsql_datetime:date().
-type pg_time() :: epgsql_datetime:time().
-type pg_datetime() :: {pg_date(), pg_time()}.
-type pg_interval() :: {pg_time(), Days :: integer(), Months :: integer()}.

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [epgsql_datetime:name()].
names() -> [date, time, timetz, timestamp, timestamptz, interval].

-spec encode(epgsql_datetime:value(), epgsql_datetime:name(), any()) -> binary().
encode(Value, Name, _) -> epgsql_datetime:encode(Name, Value).

-spec decode(binary(), epgsql_datetime:name(), any()) -> epgsql_datetime:value().
decode(Bin, Name, _) -> epgsql_datetime:decode(Name, Bin).
