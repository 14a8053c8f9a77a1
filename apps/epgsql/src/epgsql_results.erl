%% The results that several commands make of the same messages: rows, and the result at the end of a
%% query.
%%
%% Pure, but for what `epgsql_session' does.
-module(epgsql_results).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([row/2, complete/3, result/3, complete_rows/3, columns/2, described/2, statement/3]).

-export_type([result/0]).

-type result() :: {ok, Count :: non_neg_integer()}
                | {ok, [epgsql:column()], [tuple()]}
                | {ok, Count :: non_neg_integer(), [epgsql:column()], [tuple()]}.

-spec row(binary(), epgsql_wire:row_decoder() | undefined) -> tuple().
row(<<_Count:16, Cells/binary>>, Decoder) when Decoder =/= undefined ->
    epgsql_wire:decode_data(Cells, Decoder);
row(_, _) ->
    error({malformed, data_row}).

%% Of a query: with its columns. The second is what `epgsqli' sends.
-spec complete(binary(), [epgsql:column()], epgsql_session:session()) ->
          {result(), {complete, epgsql_backend:complete()}}.
complete(Payload, Columns, Session) ->
    Complete = epgsql_backend:complete(Payload),
    {result(Complete, Columns, epgsql_session:get_rows(Session)), {complete, Complete}}.

-spec result(epgsql_backend:complete(), [epgsql:column()], [tuple()]) -> result().
result({_, Count}, [], _) -> {ok, Count};
result({_, Count}, Columns, Rows) -> {ok, Count, Columns, Rows};
result(_, Columns, Rows) -> {ok, Columns, Rows}.

%% Of `execute' and batches: without, since who asks has them.
-spec complete_rows(binary(), [epgsql:column()], epgsql_session:session()) ->
          {tuple(), {complete, epgsql_backend:complete()}}.
complete_rows(Payload, Columns, Session) ->
    case complete(Payload, Columns, Session) of
        {{ok, Count, _, Rows}, Notice} -> {{ok, Count, Rows}, Notice};
        {{ok, _, Rows}, Notice} -> {{ok, Rows}, Notice};
        Counted -> Counted
    end.

%% RowDescription.
-spec columns(binary(), epgsql_session:session()) -> [epgsql:column()].
columns(<<Count:16, Rest/binary>>, Session) ->
    epgsql_wire:decode_columns(Count, Rest, epgsql_session:get_codec(Session));
columns(_, _) ->
    error({malformed, row_description}).

%% ParameterDescription: the types' names, and what `#statement.parameter_info' has.
-spec described(binary(), epgsql_session:session()) ->
          {[epgsql:epgsql_type()], [epgsql_oid_db:oid_info() | {unknown_oid, non_neg_integer()}]}.
described(Payload, Session) ->
    Codec = epgsql_session:get_codec(Session),
    Types = epgsql_wire:decode_parameters(Payload, Codec),
    {[epgsql_binary:typeinfo_to_name_array(Type, Codec) || Type <- Types],
     [epgsql_binary:typeinfo_to_oid_info(Type, Codec) || Type <- Types]}.

%% RowDescription of a statement: its columns will be asked for in the format that they are read in.
-spec statement(binary(), #statement{}, epgsql_session:session()) -> #statement{}.
statement(Payload, Statement, Session) ->
    Codec = epgsql_session:get_codec(Session),
    Statement#statement{columns = [Column#column{format = epgsql_wire:format(Column, Codec)}
                                   || Column <- columns(Payload, Session)]}.
