%% Halley's stream and synchronous replication: whom PostgreSQL waits for when it commits.
%%
%% With `synchronous_standby_names' = '*' PostgreSQL treats every stream's client as a standby, and
%% Halley isn't one: it has no copy of the data. PostgreSQL doesn't wait for a client that has
%% confirmed no position (as pg_receivewal). A slot must get a position all the same, so each
%% confirmed one is followed by an empty one at once: then a standby that is there is what commits
%% wait for, whatever Halley does.
%%
%% Where there is no other standby, commits wait until Halley confirms. That is as it was without
%% Halley, when they waited for ever; so while it counts it confirms at once.
-module(halley_postgres_standby).

-export([confirm/2, counts/1, is_named/2, warnings/1]).

%% Everything before this position is done.
-spec confirm(epgsql:connection(), epgsql_replication:lsn()) -> ok.
confirm(R, Lsn) ->
    ok = epgsql:standby_status_update(R, Lsn, Lsn),
    ok = epgsql:standby_status_update(R, 0, 0).

%% Would PostgreSQL wait for us?
-spec counts(epgsql:connection()) -> boolean().
counts(C) -> is_named(names(C), halley_postgres_settings:application_name()).

names(C) ->
    case epgsql:squery(C, "SELECT current_setting('synchronous_standby_names')") of
        {ok, _, [{Names}]} -> Names;
        {error, Error} -> exit({query_failed, Error})
    end.

-spec warnings(epgsql:connection()) -> [unicode:chardata()].
warnings(C) ->
    Names = names(C),
    [["synchronous_standby_names is '", halley_postgres_login:quoted(Names), "': PostgreSQL takes "
      "Halley's stream for a standby, so commits may be taken for replicated that no standby has, "
      "and where there is no other one they wait for Halley, for ever while it stands still. Name "
      "your standbys there, as in "
      "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby1, standby2)'"]
     || is_named(Names, halley_postgres_settings:application_name())].

%% As PostgreSQL reads it: `FIRST 1 (a, "B c")', `ANY 2 (*)', `a, b'. Case doesn't matter. It is
%% bytes: the server's files may have other letters than its databases.
-spec is_named(Names :: binary(), Application :: string()) -> boolean().
is_named(Names, Application) ->
    List = case re:run(Names, "^\\s*(?:(?:first|any)\\s+)?[0-9]+\\s*\\((.*)\\)\\s*$",
                       [caseless, dotall, {capture, all_but_first, binary}]) of
        {match, [Inside]} -> Inside;
        nomatch -> Names
    end,
    case re:run(List, "\"(?:[^\"]|\"\")*\"|[^\\s,\"]+", [global, {capture, first, binary}]) of
        {match, Found} ->
            lists:any(fun([Name]) ->
                Text = unquoted(Name),
                Text =:= <<"*">> orelse lower(Text) =:= lower(list_to_binary(Application))
            end, Found);
        nomatch -> false
    end.

unquoted(<<$", Rest/binary>>) ->
    binary:replace(binary:part(Rest, 0, byte_size(Rest) - 1), <<"\"\"">>, <<"\"">>, [global]);
unquoted(Name) -> Name.

%% Letters of ASCII alone: Halley's name has no others.
lower(Bytes) -> << <<(if C >= $A, C =< $Z -> C + 32; true -> C end)>> || <<C>> <= Bytes >>.
