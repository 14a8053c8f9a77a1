%% The requests of a connection with the option `replication' besides streams: slots, and which
%% server it is. Streams begin with `epgsql:start_replication/7'.
%%
%% The option's value is "database" for logical slots, and "true" for physical ones.
%% PostgreSQL's documentation, "Streaming Replication Protocol".
-module(epgsql_replication).

-export([identify_system/1, timeline_history/2, create_slot/3, drop_slot/2, drop_slot/3, lsn/1,
         lsn_text/1]).

-export_type([slot/0, slot_options/0, system/0, history/0, lsn/0]).

-type lsn() :: non_neg_integer().
-type system() :: #{system := binary(), timeline := pos_integer(), position := lsn(),
                    database := binary() | null}.
%% `kind': a physical slot has neither plugin nor snapshot. `is_temporary': it goes with the
%% connection. `snapshot': `export' gives a name for `SET TRANSACTION SNAPSHOT', good until the
%% connection does anything else; `use' is for the transaction that the connection is in.
%% `reserves_wal': a physical slot keeps WAL from now on, not from its first stream on.
-type slot_options() :: #{kind => logical | physical, plugin => iodata(),
                          is_temporary => boolean(), snapshot => export | use | none,
                          reserves_wal => boolean()}.
%% A stream from `position' on has every transaction that the snapshot doesn't show, and no other.
-type slot() :: #{name := binary(), position := lsn(), snapshot := binary() | null,
                  plugin := binary() | null}.

-spec identify_system(epgsql:connection()) -> {ok, system()} | {error, any()}.
identify_system(C) ->
    case epgsql:squery(C, "IDENTIFY_SYSTEM") of
        {ok, _, [{System, Timeline, Position, Database}]} ->
            {ok, #{system => System, timeline => binary_to_integer(Timeline),
                   position => lsn(Position), database => Database}};
        {error, _} = Error -> Error
    end.

%% The timelines before this one, the oldest first, and where each of them ended.
-type history() :: [{Timeline :: pos_integer(), End :: lsn()}].

-spec timeline_history(epgsql:connection(), Timeline :: pos_integer()) ->
          {ok, history()} | {error, any()}.
timeline_history(_, 1) -> {ok, []};
timeline_history(C, Timeline) ->
    case epgsql:squery(C, ["TIMELINE_HISTORY ", integer_to_list(Timeline)]) of
        {ok, _, [{_, Content}]} ->
            {ok, [{binary_to_integer(Before), lsn(End)}
                  || Line <- binary:split(Content, <<"\n">>, [global]),
                     [Before, End | _] <- [binary:split(Line, <<"\t">>, [global])]]};
        {error, _} = Error -> Error
    end.

-spec create_slot(epgsql:connection(), Name :: iodata(), slot_options()) ->
          {ok, slot()} | {error, any()}.
create_slot(C, Name, Options) ->
    Temporary = [" TEMPORARY" || maps:get(is_temporary, Options, false)],
    Sql = ["CREATE_REPLICATION_SLOT ", quoted(Name), Temporary,
           kind(maps:get(kind, Options, logical), Options)],
    case epgsql:squery(C, Sql) of
        {ok, _, [{Slot, Position, Snapshot, Plugin}]} ->
            {ok, #{name => Slot, position => lsn(Position), snapshot => Snapshot,
                   plugin => Plugin}};
        {error, _} = Error -> Error
    end.

kind(physical, Options) ->
    [" PHYSICAL", [" RESERVE_WAL" || maps:get(reserves_wal, Options, false)]];
kind(logical, Options) ->
    [" LOGICAL ", quoted(maps:get(plugin, Options, "pgoutput")),
     case maps:get(snapshot, Options, none) of
         export -> " EXPORT_SNAPSHOT";
         use -> " USE_SNAPSHOT";
         none -> " NOEXPORT_SNAPSHOT"
     end].

-spec drop_slot(epgsql:connection(), Name :: iodata()) -> ok | {error, any()}.
drop_slot(C, Name) -> drop_slot(C, Name, #{}).

%% `waits': for whoever streams it now.
-spec drop_slot(epgsql:connection(), Name :: iodata(), #{waits => boolean()}) ->
          ok | {error, any()}.
drop_slot(C, Name, Options) ->
    case epgsql:squery(C, ["DROP_REPLICATION_SLOT ", quoted(Name),
                           [" WAIT" || maps:get(waits, Options, false)]]) of
        {error, _} = Error -> Error;
        _ -> ok
    end.

quoted(Name) -> [$", string:replace(iolist_to_binary(Name), "\"", "\"\"", all), $"].

%% `16/B374D848', two halves of 32 bits.
-spec lsn(binary() | string()) -> lsn().
lsn(Text) ->
    [High, Low] = string:split(Text, "/"),
    (half(High) bsl 32) bor half(Low).

half(Text) when is_binary(Text) -> binary_to_integer(Text, 16);
half(Text) -> list_to_integer(Text, 16).

-spec lsn_text(lsn()) -> binary().
lsn_text(Lsn) ->
    iolist_to_binary([integer_to_binary(Lsn bsr 32, 16), $/,
                      integer_to_binary(Lsn band 16#ffffffff, 16)]).
