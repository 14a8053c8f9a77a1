%% The records of epgsql's API, on which applications match. Names, fields and order are those of
%% epgsql 4.8.

%% One column of a result: a field of RowDescription.
-record(column, {
    name :: binary(),
    type :: epgsql:epgsql_type(),
    oid :: non_neg_integer(),
    size :: integer(),                         %% pg_type.typlen; negative: of variable length
    modifier :: integer(),                     %% pg_attribute.atttypmod
    format :: 0 | 1,                           %% as it is sent: 0 text, 1 binary
    table_oid :: non_neg_integer(),            %% 0: of no table
    table_attr_number :: non_neg_integer()     %% pg_attribute.attnum; 0: of no table
}).

%% A prepared statement.
-record(statement, {
    name :: iodata(),
    columns :: [#column{}] | undefined,
    types :: [epgsql:epgsql_type()] | undefined,
    parameter_info :: [epgsql_oid_db:oid_entry() | {unknown_oid, non_neg_integer()}] | undefined
}).

%% What the server says in ErrorResponse and NoticeResponse.
-record(error, {
    severity :: debug | log | info | notice | warning | error | fatal | panic | undefined,
    code :: binary() | undefined,              %% SQLSTATE
    codename :: atom(),                        %% its name in the documentation's Appendix A
    message :: binary() | undefined,
    extra :: [{severity | detail | hint | position | internal_position | internal_query | where
               | schema_name | table_name | column_name | data_type_name | constraint_name
               | file | line | routine, binary()}]
}).
