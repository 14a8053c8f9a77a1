%% Dates and times as PostgreSQL counts them: days and microseconds since 2000-01-01, 64 bits.
%%
%% Pure. Years before 1 are as astronomers count them, so that the year before 1 is 0 (1 BC). The
%% calendar is Gregorian at all times. Seconds are floats with microseconds. `infinity' of dates and
%% timestamps is `plus_infinity' and `minus_infinity'. The format with floats of servers before
%% PostgreSQL 10 isn't known here.
-module(epgsql_datetime).

-export([encode/2, decode/2]).

-export_type([name/0, value/0, date/0, time/0]).

-type name() :: date | time | timetz | timestamp | timestamptz | interval.
-type date() :: {Year :: integer(), Month :: 1..12, Day :: 1..31}.
-type time() :: {Hour :: integer(), Minute :: integer(), Second :: number()}.
-type infinity() :: plus_infinity | minus_infinity.
%% Of timetz, seconds west of Greenwich; of intervals, days and months besides.
-type value() :: date() | time() | {time(), Zone :: integer()} | {date(), time()}
               | {time(), Days :: integer(), Months :: integer()} | erlang:timestamp()
               | infinity().

-define(US, 1000000).
-define(DAY_US, (86400 * ?US)).
%% Days from 0000-03-01 to 2000-01-01: years begin with March here, so that leap days come last.
-define(EPOCH_DAYS, 730425).
-define(EPOCH_UNIX_US, (946684800 * ?US)).
-define(ERA_DAYS, 146097).

-spec encode(name(), value()) -> binary().
encode(date, plus_infinity) -> <<(1 bsl 31 - 1):32>>;
encode(date, minus_infinity) -> <<(-(1 bsl 31)):32>>;
encode(date, Date) -> <<(days(Date)):32>>;
encode(time, Time) -> <<(microseconds(Time)):64>>;
encode(timetz, {Time, Zone}) -> <<(microseconds(Time)):64, Zone:32>>;
encode(interval, {Time, Days, Months}) -> <<(microseconds(Time)):64, Days:32, Months:32>>;
encode(_, plus_infinity) -> <<(1 bsl 63 - 1):64>>;
encode(_, minus_infinity) -> <<(-(1 bsl 63)):64>>;
encode(_, {Mega, Seconds, Micro}) when is_integer(Mega) ->
    <<((Mega * ?US + Seconds) * ?US + Micro - ?EPOCH_UNIX_US):64>>;
encode(_, {Date, Time}) ->
    <<(days(Date) * ?DAY_US + microseconds(Time)):64>>.

-spec decode(name(), binary()) -> value().
decode(date, <<16#7fffffff:32>>) -> plus_infinity;
decode(date, <<16#80000000:32>>) -> minus_infinity;
decode(date, <<Days:32/signed>>) -> date(Days);
decode(time, <<Us:64/signed>>) -> time(Us);
decode(timetz, <<Us:64/signed, Zone:32/signed>>) -> {time(Us), Zone};
decode(interval, <<Us:64/signed, Days:32/signed, Months:32/signed>>) -> {time(Us), Days, Months};
decode(Name, <<Us:64/signed>>) when Name =:= timestamp; Name =:= timestamptz -> timestamp(Us).

timestamp(16#7fffffffffffffff) -> plus_infinity;
timestamp(-16#8000000000000000) -> minus_infinity;
timestamp(Us) ->
    Days = floor_div(Us, ?DAY_US),
    {date(Days), time(Us - Days * ?DAY_US)}.

%% Each part has the sign of the whole: an interval may be negative.
time(Us) ->
    Rest = Us rem (3600 * ?US),
    {Us div (3600 * ?US), Rest div (60 * ?US), (Rest rem (60 * ?US)) / ?US}.

microseconds({Hour, Minute, Second}) -> (Hour * 60 + Minute) * 60 * ?US + round(Second * ?US).

%% 400 years, an era, have the same days each time.
days({Year, Month, Day}) ->
    FromMarch = (Month + 9) rem 12,
    Shifted = Year - FromMarch div 10,
    Era = floor_div(Shifted, 400),
    OfEra = Shifted - Era * 400,
    Era * ?ERA_DAYS + OfEra * 365 + OfEra div 4 - OfEra div 100
        + (FromMarch * 153 + 2) div 5 + Day - 1 - ?EPOCH_DAYS.

date(SinceEpoch) ->
    Days = SinceEpoch + ?EPOCH_DAYS,
    Era = floor_div(Days, ?ERA_DAYS),
    OfEra = Days - Era * ?ERA_DAYS,
    Year = (OfEra - OfEra div 1460 + OfEra div 36524 - OfEra div 146096) div 365,
    OfYear = OfEra - (365 * Year + Year div 4 - Year div 100),
    FromMarch = (5 * OfYear + 2) div 153,
    Month = (FromMarch + 2) rem 12 + 1,
    {Era * 400 + Year + FromMarch div 10, Month, OfYear - (153 * FromMarch + 2) div 5 + 1}.

floor_div(A, B) when A >= 0 -> A div B;
floor_div(A, B) -> -((B - 1 - A) div B).
