%% The SQL texts: identifiers and literals quoted, a table's copy, the question whether pairs are in
%% a table, and what writes them.
-module(halley_postgres_sql).

-export([ident/1, literal/1, table/1, condition/1, copy/1, still/2, write/2]).
-export([is_text_of/2, is_seen/1]).
-export([message_prefix/0]).
-export_type([typed/0]).

%% As `format_type' names them.
-define(COMPARED, [<<"smallint">>, <<"integer">>, <<"bigint">>, <<"numeric">>, <<"uuid">>,
                   <<"text">>, <<"character varying">>, <<"character">>, <<"name">>, <<"bytea">>,
                   <<"boolean">>, <<"date">>, <<"timestamp with time zone">>,
                   <<"timestamp without time zone">>, <<"inet">>, <<"cidr">>, <<"macaddr">>,
                   <<"oid">>]).

%% A table with the types of its two columns.
-type typed() :: #{spec := halley_postgres_config:table(), types := {binary(), binary()}, _ => _}.

-spec ident(binary()) -> iodata().
ident(Name) -> [$", string:replace(Name, "\"", "\"\"", all), $"].

-spec literal(unicode:chardata()) -> iodata().
literal(Text) ->
    ["'", string:replace(unicode:characters_to_binary(Text), "'", "''", all), "'"].

-spec table(halley_postgres_config:table()) -> iodata().
table(#{schema := Schema, name := Name}) -> [ident(Schema), $., ident(Name)].

%% As it stands in a publication, or behind other conditions.
-spec condition(halley_postgres_config:table()) -> iodata().
condition(#{where := none}) -> [];
condition(#{where := Where}) -> ["(", Where, ")"].

%% In COPY's text format, as it writes a value like the stream does.
-spec copy(halley_postgres_config:table()) -> iodata().
copy(#{user := User, subject := Subject, where := Where} = Table) ->
    ["COPY (SELECT ", ident(User), ", ", ident(Subject), " FROM ", table(Table),
     [[" WHERE ", condition(Table)] || Where =/= none], ") TO STDOUT"].

%% Which of the pairs in two arrays of text are in any of the tables now, and then one row with the
%% snapshot that shows it. The pairs come from columns of these types; where a table has the same,
%% its index can be used.
-spec still([typed()], Types :: {binary(), binary()}) -> iodata().
still(Tables, Types) ->
    ["SELECT DISTINCT x.u, x.s FROM unnest($1::text[], $2::text[]) AS x(u, s) WHERE ",
     any(Tables, Types),
     " UNION ALL SELECT NULL, pg_current_snapshot()::text"].

any(Tables, Types) -> lists:join(" OR ", [exists(Table, Types) || Table <- Tables]).

exists(#{spec := #{user := User, subject := Subject, where := Where} = Spec,
         types := {UserType, SubjectType}}, {FromUser, FromSubject}) ->
    ["EXISTS (SELECT FROM ", table(Spec), " AS t WHERE ", equal(User, "x.u", UserType, FromUser),
     " AND ", equal(Subject, "x.s", SubjectType, FromSubject),
     [[" AND ", condition(Spec)] || Where =/= none], ")"].

%% A text that comes from another type may not be one of this type. Others than these may have no
%% operator, as json and domains over enums have none.
equal(Column, Value, Type, Type) ->
    [Name | _] = string:split(Type, "("),
    case lists:member(Name, ?COMPARED) of
        true -> ["t.", ident(Column), " = ", Value, "::", Type];
        false -> as_text(Column, Value)
    end;
equal(Column, Value, _, _) -> as_text(Column, Value).

as_text(Column, Value) -> ["format('%s', t.", ident(Column), ") = ", Value].

%% --- writing -------------------------------------------------------------------------------------

%% Of the message that a write leaves.
-spec message_prefix() -> binary().
message_prefix() -> <<"halley_follows">>.

%% Adds pairs in two arrays of text to a table, or removes them, and leaves a message in the same
%% transaction: the third parameter, and three lists of places, from 1: of pairs whose rows came or
%% went, of texts that aren't those of their values (`007' of 7), and of pairs that other tables
%% have as well.
-spec write(add | remove, #{table := halley_postgres_config:table(),
                            types := {binary(), binary()}, others := [typed()], _ => _}) ->
    iodata().
write(Kind, #{table := Table, types := {UserType, SubjectType} = Types, others := Others}) ->
    ["WITH x AS MATERIALIZED (SELECT i, u, s, u::", UserType, " AS a, s::", SubjectType, " AS b ",
     "FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS t(u, s, i)), "
     "good AS MATERIALIZED (SELECT min(i) AS i, a, b FROM x "
     "WHERE format('%s', a) = u AND format('%s', b) = s GROUP BY a, b), "
     "done(a, b) AS (", done(Kind, Table), ") "
     "SELECT pg_logical_emit_message(true, '", message_prefix(), "', $3::text || ' ' || ",
     places("good JOIN done ON good.a = done.a AND good.b = done.b"), " || ' ' || ",
     places("x WHERE format('%s', a) <> u OR format('%s', b) <> s"), " || ' ' || ",
     case {Kind, Others} of
         {remove, [_ | _]} -> places(["x WHERE ", any(Others, Types)]);
         _ -> "'-'"
     end, ")::text"].

places(From) -> ["coalesce((SELECT string_agg(i::text, ',') FROM ", From, "), '-')"].

%% In one order, so that two of them don't wait for each other.
done(add, #{user := User, subject := Subject} = Table) ->
    Columns = [ident(User), ", ", ident(Subject)],
    ["INSERT INTO ", table(Table), " (", Columns, ") SELECT a, b FROM good ORDER BY a, b "
     "ON CONFLICT (", Columns, ") DO NOTHING RETURNING ", Columns];
done(remove, #{user := User, subject := Subject} = Table) ->
    ["DELETE FROM ", table(Table), " AS t USING good WHERE t.", ident(User), " = good.a AND t.",
     ident(Subject), " = good.b RETURNING good.a, good.b"].

%% Whether a text may be that of a value, for types where it is easy to see; of others the server is
%% asked.
-spec is_text_of(binary(), Type :: binary()) -> boolean().
is_text_of(Text, <<"smallint">>) -> is_integer_of(Text, 16);
is_text_of(Text, <<"integer">>) -> is_integer_of(Text, 32);
is_text_of(Text, <<"bigint">>) -> is_integer_of(Text, 64);
is_text_of(Text, <<"uuid">>) ->
    re:run(Text, "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\z", [{capture, none}]) =:= match;
is_text_of(_, _) -> true.

%% Of these types it is seen: each text that may be one is one.
-spec is_seen(Type :: binary()) -> boolean().
is_seen(Type) ->
    lists:member(Type, [<<"smallint">>, <<"integer">>, <<"bigint">>, <<"uuid">>, <<"text">>]).

is_integer_of(Text, Bits) ->
    case re:run(Text, "^(0|-?[1-9][0-9]{0,18})\\z", [{capture, none}]) of
        match ->
            Value = binary_to_integer(Text),
            Value >= -(1 bsl (Bits - 1)) andalso Value < 1 bsl (Bits - 1);
        nomatch -> false
    end.
