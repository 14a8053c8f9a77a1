%% The settings that Halley's own sessions need, whatever PostgreSQL's configuration, the database
%% or the role says (ALTER DATABASE ... SET, ALTER ROLE ... SET). Pure.
%%
%% Three kinds: time-outs, which are for other people's sessions; what makes a transaction another
%% one; and what a value's text looks like. The texts are ids of users and subjects, and make ids of
%% events, so the copy, the stream and the queries must have the same. The path is that of what is
%% built in: a schema in which others may make functions (`public' of an older server) could give
%% them to Halley's role to run, and what isn't built in is named with its schema.
%%
%% A pooler such as PgBouncer takes few of them in the first message of a connection, and a server
%% none that it doesn't know. So those that all take are sent there, and the others by SET, where
%% the server is new enough for them. The pool of the API's writes is only there where a stream is,
%% and a stream passes no pooler: its connections have them in the first message as well, so that no
%% statement_timeout of the role ends the SET.
-module(halley_postgres_settings).

-export([first/1, all/3, version/1, application_name/0]).

-export_type([purpose/0]).

-type purpose() :: queries | replication | writes.
%% The first number of it.
-type version() :: non_neg_integer().
-type settings() :: [{Name :: string(), Value :: string()}].

%% What pg_stat_activity shows of our sessions, and what synchronous_standby_names may have.
-spec application_name() -> string().
application_name() -> "halley".

%% Those of the first message.
-spec first(purpose()) -> settings().
first(writes) -> texts() ++ more(writes);
first(_) -> texts().

texts() -> [{"TimeZone", "UTC"}, {"DateStyle", "ISO, MDY"}].

%% SQL for all but the texts, and for those that depend on the server.
-spec all(purpose(), version(), settings()) -> iodata().
all(Purpose, Version, Others) ->
    [["SET ", Name, " = '", Value, "'; "]
     || {Name, Value} <- more(Purpose) ++ [{Name, Value} || {Since, Name, Value} <- newer(),
                                                            Version >= Since] ++ Others].

more(Purpose) ->
    [{"statement_timeout", "0"}, {"lock_timeout", "0"}, {"idle_session_timeout", "0"},
     {"idle_in_transaction_session_timeout", "0"},
     {"default_transaction_read_only", "off"}, {"default_transaction_deferrable", "off"},
     {"default_transaction_isolation", "read committed"}, {"row_security", "on"},
     {"standard_conforming_strings", "on"}, {"quote_all_identifiers", "off"},
     {"client_min_messages", "warning"},
     {"bytea_output", "hex"}, {"IntervalStyle", "postgres"}, {"extra_float_digits", "1"},
     {"xmloption", "content"}, {"search_path", "pg_catalog"}]
    ++ [{"synchronous_commit", "local"} || Purpose =/= writes].

%% What a server has from this version on. The oldest that Halley takes is 15.
newer() -> [{17, "transaction_timeout", "0"}].

%% Of `server_version': `17.2 (Debian 17.2-1)', `18beta1'. 0 where it isn't said.
-spec version(binary() | undefined) -> version().
version(Text) ->
    case is_binary(Text) andalso re:run(Text, "^[0-9]+", [{capture, first, list}]) of
        {match, [Number]} -> list_to_integer(Number);
        _ -> 0
    end.
