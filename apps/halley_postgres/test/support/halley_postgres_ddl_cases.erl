%% Statements that change a table of follows: how `f' is made, and the statements that follow.
-module(halley_postgres_ddl_cases).

-export([cases/1, made/1]).

-type sql() :: [string()].

%% --- the tables ----------------------------------------------------------------------------------

-spec made(atom() | {enum, Type :: string()}) -> string().
made(plain) ->
    "create table f (a int, b int, note text, primary key (a, b)); "
    "insert into f values (1, 2), (1, 3), (2, 3)";
made(full) ->
    "create table f (a int, b int, note text); alter table f replica identity full; "
    "insert into f values (1, 2), (1, 3), (2, 3)";
made(in_all) ->
    made(plain) ++ "; create publication halley for all tables "
                   "with (publish_via_partition_root = true)";
made(unique) ->
    "create table f (a int, b int, note text, constraint one unique (a, b)); "
    "alter table f replica identity full; insert into f values (1, 2), (1, 3), (2, 3)";
made({enum, Type}) ->
    "create type kind as enum ('2', '3', '4'); create domain domain_of_it as kind; "
    "create type row_of_it as (k kind, n int); "
    "create table f (a int, b " ++ Type ++ "); alter table f replica identity full; "
    "insert into f values " ++ case Type of
        "kind[]" -> "(1, '{2,3}'), (1, '{3}')";
        "row_of_it" -> "(1, '(2,1)'), (1, '(3,1)')";
        _ -> "(1, '2'), (1, '3'), (2, '3')"
    end;
made(parts) ->
    "create table f (a int, b int, note text, primary key (a, b)) partition by range (b); "
    "create table p1 partition of f for values from (0) to (10); "
    "create table p2 partition of f for values from (10) to (20) partition by range (b); "
    "create table p21 partition of p2 for values from (10) to (15); "
    "create table p22 partition of p2 for values from (15) to (20); "
    "insert into f values (1, 2), (1, 3), (2, 3), (1, 12), (1, 17), (2, 17)";
made(full_parts) ->
    "create table f (a int, b int, c int) partition by range (a); "
    "create table p1 partition of f for values from (0) to (10); "
    "create table p2 partition of f for values from (10) to (20); "
    "alter table f replica identity full; alter table p1 replica identity full; "
    "alter table p2 replica identity full; "
    "insert into f values (1, 2, 1), (1, 3, 2), (12, 13, 3)".

%% --- cases ---------------------------------------------------------------------------------------

%% `Ddl', and what is changed in the table behind it.
-spec cases(atom()) ->
    [{Name :: string(), Made :: atom() | {enum, string()}, Ddl :: sql(), Then :: sql()}].
cases(types) -> types();
cases(columns) -> columns();
cases(names) -> names();
cases(publications) -> publications();
cases(partitions) -> partitions();
cases(partitions_that_go) -> partitions_that_go().

types() ->
    [{"a type, USING", plain, ["alter table f alter b type text using 'u' || b"],
      ["delete from f where b = 'u2'; insert into f values (1, 'u9')"]},
     {"the user's type, USING", plain, ["alter table f alter a type text using '1' || a"],
      ["delete from f where b = 2; insert into f values ('1', 9)"]},
     {"the same type, USING", plain, ["alter table f alter b type int using b + 100"],
      ["delete from f where b = 102; insert into f values (1, 9)"]},
     {"a type, in a transaction with changes", plain,
      ["begin; delete from f where b = 2; alter table f alter b type text using 'u' || b; "
       "insert into f values (1, 'u7'); commit"], ["delete from f where b = 'u7'"]},
     {"a type that says the same", plain, ["alter table f alter b type bigint"],
      ["delete from f where b = 2; insert into f values (1, 5000000000)"]},
     {"a type whose text is another, without a rewrite", {enum, "kind"},
      ["create table g (t timestamp); alter table f add c timestamp default '2020-01-01'; "
       "alter table f drop b; alter table f rename c to b; "
       "set timezone = 'UTC'; alter table f alter b type timestamptz; reset timezone"],
      ["insert into f values (1, '2021-01-01 00:00:00Z')"]},
     {"a label of an enum", {enum, "kind"}, ["alter type kind rename value '2' to '9'"],
      ["delete from f where b = '9'; insert into f values (1, '4')"]},
     {"labels of an enum that change places", {enum, "kind"},
      ["begin; alter type kind rename value '2' to 'x'; alter type kind rename value '4' to '2'; "
       "alter type kind rename value 'x' to '4'; commit"], ["delete from f where b = '4'"]},
     {"a label of an enum below a domain", {enum, "domain_of_it"},
      ["alter type kind rename value '2' to '9'"],
      ["delete from f where b::text = '9' or a = 2"]},
     {"a label of an enum in an array", {enum, "kind[]"},
      ["alter type kind rename value '2' to '9'"], ["insert into f values (1, '{9}')"]},
     {"a label of an enum in a row", {enum, "row_of_it"},
      ["alter type kind rename value '2' to '9'"], ["insert into f values (1, '(9,3)')"]},
     {"one more column of a row", {enum, "row_of_it"},
      ["alter type row_of_it add attribute m int"], ["insert into f values (1, '(2,3,4)')"]},
     {"one more label", {enum, "kind"}, ["alter type kind add value '5' before '3'"],
      ["insert into f values (1, '5')"]}].

columns() ->
    [{"a column in place of another", full,
      ["alter table f drop column b; alter table f add b int not null default 7"],
      ["insert into f values (1, 'x', 8)"]},
     {"columns that change names", plain,
      ["begin; alter table f rename a to c; alter table f rename b to a; "
       "alter table f rename c to b; commit"], ["delete from f where a = 2"]},
     {"a column renamed, and back", plain,
      ["alter table f rename b to c; insert into f values (1, 4); delete from f where c = 2; "
       "alter table f rename c to b"], ["insert into f values (1, 9)"]},
     {"a unique constraint, dropped", unique,
      ["alter table f drop constraint one; insert into f values (1, 2), (1, 2)"],
      ["delete from f where ctid = (select min(ctid) from f where a = 1 and b = 2)"]},
     {"a unique constraint, dropped and made again", unique,
      ["alter table f drop constraint one; insert into f values (1, 2), (2, 9), (2, 9); "
       "delete from f where ctid = (select min(ctid) from f where a = 1 and b = 2); "
       "delete from f where ctid = (select min(ctid) from f where a = 2 and b = 9); "
       "alter table f add constraint one unique (a, b)"], ["delete from f where b = 3"]},
     {"a deferred unique constraint", full,
      ["alter table f add constraint late unique (a, b) deferrable initially deferred"],
      ["begin; update f set b = 2 where a = 1 and b = 3; "
       "delete from f where ctid = (select min(ctid) from f where a = 1 and b = 2); commit"]}].

names() ->
    [{"the table, renamed and back", plain,
      ["alter table f rename to g; insert into g values (1, 4); delete from g where b = 2; "
       "alter table g rename to f"], ["delete from f where b = 4"]},
     {"the table, in another schema and back", plain,
      ["create schema s; alter table f set schema s; insert into s.f values (1, 4); "
       "delete from s.f where b = 2; alter table s.f set schema public; drop schema s"],
      ["delete from f where b = 4"]},
     {"the schema, renamed and back", plain,
      ["alter schema public rename to s; insert into s.f values (1, 4); "
       "delete from s.f where b = 2; alter schema s rename to public"],
      ["delete from f where b = 4"]},
     {"a table made again", plain,
      ["drop table f; " ++ made(plain) ++ "; delete from f where b = 2; "
       "alter publication halley add table f"], ["insert into f values (1, 9)"]},
     {"a table made again, all are published", in_all,
      ["begin; drop table f; " ++ made(plain) ++ "; delete from f where b = 2; commit"],
      ["insert into f values (1, 9)"]},
     {"a table in place of another, all are published", in_all,
      ["create table g (a int, b int, primary key (a, b)); insert into g values (1, 7); "
       "begin; alter table f rename to old; alter table g rename to f; commit; "
       "delete from old; insert into old values (1, 77)"], ["insert into f values (1, 9)"]},
     {"truncated", plain, ["truncate f"], ["insert into f values (1, 9)"]},
     {"truncated and filled in a transaction", plain,
      ["begin; truncate f; insert into f values (1, 9); commit"], ["delete from f"]},
     {"truncated with what it refers to", plain,
      ["create table u (id int primary key); insert into u values (1), (2); "
       "alter table f add foreign key (a) references u; truncate u cascade"],
      ["insert into u values (1); insert into f values (1, 9)"]},
     {"unlogged for a while, all are published", in_all,
      ["alter table f set unlogged; delete from f where b = 2; insert into f values (1, 9); "
       "alter table f set logged"], ["delete from f where b = 9"]},
     {"a table that inherits, for a while", plain,
      ["create table heir (a int not null, b int not null, note text); "
       "insert into heir values (1, 77); alter table heir inherit f; "
       "alter table heir no inherit f"], ["delete from f where b = 2"]},
     {"one more column, with a value for each row", plain,
      ["alter table f add more float default random()"], ["delete from f where b = 2"]},
     {"another column's type", plain,
      ["alter table f alter note type int using 7"], ["delete from f where b = 2"]}].

publications() ->
    [{"the table out of it for a while", plain,
      ["alter publication halley drop table f; delete from f where b = 2; "
       "insert into f values (1, 9); alter publication halley add table f"],
      ["delete from f where b = 9"]},
     {"the table out of it for a while, in a transaction", plain,
      ["begin; alter publication halley drop table f; delete from f where b = 2; "
       "alter publication halley add table f; commit"], ["insert into f values (1, 9)"]},
     {"nothing but inserts for a while", plain,
      ["alter publication halley set (publish = 'insert'); delete from f where b = 2; "
       "alter publication halley set (publish = 'insert, update, delete, truncate')"],
      ["insert into f values (1, 9)"]},
     {"no truncates for a while", plain,
      ["alter publication halley set (publish = 'insert, update, delete'); truncate f; "
       "insert into f values (1, 9); "
       "alter publication halley set (publish = 'insert, update, delete, truncate')"],
      ["delete from f"]},
     {"a filter for a while", plain,
      ["alter publication halley set table f where (b > 2); insert into f values (2, 1); "
       "delete from f where b = 2; alter publication halley set table f"],
      ["delete from f where b = 1"]},
     {"columns for a while", plain,
      ["alter publication halley set table f (a, b); insert into f values (1, 9); "
       "alter publication halley set table f"], ["delete from f where b = 9"]},
     {"names of partitions for a while", parts,
      ["alter publication halley set (publish_via_partition_root = false); "
       "delete from f where b = 2; insert into f values (1, 9); "
       "alter publication halley set (publish_via_partition_root = true)"],
      ["delete from f where b = 9"]},
     {"made anew", plain,
      ["begin; drop publication halley; create publication halley for table f "
       "with (publish_via_partition_root = true); commit; delete from f where b = 2"],
      ["insert into f values (1, 9)"]},
     {"a schema's tables, for a while", plain,
      ["alter publication halley drop table f; alter publication halley add tables in schema public"
       "; delete from f where b = 2; alter publication halley drop tables in schema public; "
       "insert into f values (1, 8); alter publication halley add table f"],
      ["insert into f values (1, 9)"]}].

partitions() ->
    [{"one is truncated", parts, ["truncate p1"], ["insert into f values (1, 9)"]},
     {"one below another is truncated", parts, ["truncate p22"], ["insert into f values (1, 18)"]},
     {"those below one are truncated", parts, ["truncate p2"], ["delete from f where b = 2"]},
     {"one is truncated and filled", parts, ["begin; truncate p1; insert into p1 values (1, 2), "
                                             "(1, 8); commit"], ["delete from f where b = 8"]},
     {"all are truncated", parts, ["truncate f"], ["insert into f values (1, 9), (1, 12)"]},
     {"one with rows comes", parts,
      ["create table p3 (a int not null, b int not null, note text, primary key (a, b)); "
       "insert into p3 values (1, 25), (2, 25); "
       "alter table f attach partition p3 for values from (20) to (30)"],
      ["delete from f where b = 25 and a = 1; insert into f values (1, 26)"]},
     {"one comes, is filled and goes", parts,
      ["create table p3 partition of f for values from (20) to (30); "
       "insert into f values (1, 25)"], ["alter table f detach partition p3"]}].

partitions_that_go() ->
    [{"one goes", parts, ["alter table f detach partition p1"], ["insert into f values (1, 18)"]},
     {"one goes, beside others' work", parts, ["alter table f detach partition p1 concurrently"],
      ["insert into f values (1, 18)"]},
     {"one with others below goes", parts, ["alter table f detach partition p2; delete from p2"],
      ["delete from f where b = 2"]},
     {"one goes, is changed, and comes back", parts,
      ["alter table f detach partition p1; delete from p1 where b = 2; insert into p1 values "
       "(1, 9); alter table f attach partition p1 for values from (0) to (10)"],
      ["delete from f where b = 9"]},
     {"one is dropped", parts, ["drop table p21"], ["delete from f where b = 17 and a = 1"]},
     {"one in place of another", parts,
      ["create table p3 (a int not null, b int not null, note text, primary key (a, b)); "
       "insert into p3 values (1, 8); begin; alter table f detach partition p1; "
       "alter table f attach partition p3 for values from (0) to (10); commit; "
       "insert into p1 values (1, 9)"], ["delete from f where b = 8"]},
     {"one is renamed, and in another schema", parts,
      ["alter table p1 rename to q1; create schema s; alter table q1 set schema s; "
       "insert into f values (1, 9); delete from s.q1 where b = 2"],
      ["delete from f where b = 9; drop schema s cascade"]},
     {"a type of all, USING", parts, ["alter table f alter a type text using 'u' || a"],
      ["delete from f where b = 2; insert into f values ('1', 9)"]},
     {"rows that change places", parts, ["update f set b = 19 where b = 2"],
      ["update f set b = 4 where b = 19"]},
     {"a replica identity without the pair, for a while", full_parts,
      ["alter table p1 alter c set not null; create unique index c_of_it on p1 (c); "
       "alter table p1 replica identity using index c_of_it; "
       "delete from f where b = 2; update f set b = 9 where b = 3; "
       "alter table p1 replica identity full"], ["delete from f where b = 9"]},
     {"rewritten, with nothing changed", parts, ["vacuum full f"], ["delete from f where b = 2"]},
     {"sorted, with nothing changed", parts, ["cluster p1 using p1_pkey"],
      ["delete from f where b = 2"]}].
