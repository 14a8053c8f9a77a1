%% `./halley key': makes, lists and revokes server keys. It runs in an emulator of its own and works
%% on the file of `data.dir', whether or not a brain runs.
%%
%% The result goes to stdout, an error to stderr in one line; the exit status is 0 or 1. A new key
%% is on stdout alone, so that a script can take it.
%%
%% A key that leaked can't wait for a configuration to be put right: if only `data.dir' can be read
%% of it, that is enough.
-module(halley_key_command).

-export([main/0, run/3]).
-export_type([result/0]).

-type result() :: {ok, Out :: unicode:chardata(), Note :: unicode:chardata()}
                | {error, Line :: unicode:chardata()}.

-define(USAGE, "usage: ./halley key create <name> --scope publish,follow,read,admin"
               " | key list | key revoke <name> | key open").

%% The arguments are those behind -extra.
-spec main() -> no_return().
main() ->
    Arguments = [unicode:characters_to_binary(A) || A <- init:get_plain_arguments()],
    NowS = halley_clock:wall_s(),
    ok = check(Arguments),
    case {halley_config:load(), halley_config:data_dir(halley_config:file(), os:env())} of
        {{ok, _}, {ok, DataDir}} ->
            finish(run(Arguments, DataDir, NowS));
        {{error, Wrong}, {ok, DataDir}} ->
            Keys = ["the keys are those of data.dir = ", DataDir, " all the same"],
            io:put_chars(standard_error, halley_command:lines([Wrong, $\n, Keys])),
            finish(run(Arguments, DataDir, NowS));
        {_, {error, Line}} ->
            finish({error, [Line, "; until it is put right, HALLEY_DATA_DIR says whose keys are "
                                  "meant"]})
    end.

%% Before the configuration.
check(Arguments) ->
    case understood(Arguments) of
        unknown -> halley_command:failed(halley_command:misused("key", Arguments, ?USAGE));
        {error, Line} -> halley_command:failed(Line);
        _ -> ok
    end.

%% `--scope=read' is the same as `--scope read', and may stand before the name.
understood([<<"create">> | Rest]) ->
    case scoped(Rest, [], none) of
        {[Name], none} -> {error, ["a key needs scopes: `./halley key create ", Name, " --scope` "
                                   "and any of publish, follow, read, admin, with commas"]};
        {[Name], Scopes} -> {create, Name, Scopes};
        _ -> unknown
    end;
understood([<<"list">>]) -> list;
understood([<<"revoke">>, Name]) -> {revoke, Name};
understood([<<"open">>]) -> open;
understood(_) -> unknown.

scoped([<<"--scope=", Scopes/binary>> | Rest], Names, none) -> scoped(Rest, Names, Scopes);
scoped([<<"--scope">>, Scopes | Rest], Names, none) -> scoped(Rest, Names, Scopes);
scoped([<<"--scope">>], Names, none) -> {Names, none};
scoped([<<"-", _/binary>> | _], _, _) -> unknown;
scoped([Name | Rest], Names, Scopes) -> scoped(Rest, Names ++ [Name], Scopes);
scoped([], Names, Scopes) -> {Names, Scopes}.

-spec finish(result()) -> no_return().
finish({ok, Out, Note}) ->
    io:put_chars(Out),
    io:put_chars(standard_error, Note),
    halt(0);
finish({error, Line}) ->
    halley_command:failed(Line).

-spec run([binary()], DataDir :: file:filename_all(), NowS :: non_neg_integer()) -> result().
run(Arguments, DataDir, NowS) -> do(understood(Arguments), DataDir, NowS).

do({create, Name, Scopes}, DataDir, NowS) ->
    case {halley_server_key:check_name(Name), halley_server_key:scopes(Scopes)} of
        {ok, {ok, Known}} -> create(Name, Known, DataDir, NowS);
        {{error, Reason}, _} -> {error, Reason};
        {_, {error, Reason}} -> {error, Reason}
    end;
do(list, DataDir, _) ->
    case halley_server_keys_file:read(DataDir) of
        {ok, {Keys, WhenNone}} -> {ok, table(Keys, WhenNone), []};
        {error, _} = Error -> Error
    end;
do({revoke, Name}, DataDir, _) ->
    revoke(Name, DataDir);
do(open, DataDir, _) ->
    open(DataDir);
do({error, _} = Error, _, _) ->
    Error;
do(unknown, _, _) ->
    {error, ?USAGE}.

create(Name, Scopes, DataDir, NowS) ->
    {Text, Key} = halley_server_key:new(Name, Scopes, NowS),
    Add = fun({Keys, _}) ->
        case [N || #{name := N} <- Keys, N =:= Name] of
            [] -> {ok, {Keys ++ [Key], closed}};
            _ -> {error, ["there is a key ", Name, " already; revoke it first, or take another "
                          "name"]}
        end
    end,
    case halley_server_keys_file:change(DataDir, Add) of
        ok -> {ok, [Text, $\n], ["This is the only time that the key is shown. Servers send it as "
                                 "`Authorization: Bearer ", hidden(Text), "`. It is for the "
                                 "Halley of data.dir = ", DataDir, ".\n"]};
        {error, _} = Error -> Error
    end.

hidden(Text) ->
    {ok, Id} = halley_server_key:id(Text),
    ["hk_", Id, "_..."].

revoke(Name, DataDir) ->
    Remove = fun({Keys, _}) ->
        case lists:partition(fun(#{name := N}) -> N =:= Name end, Keys) of
            {[], _} -> {error, ["there is no key ", Name, "; `./halley key list` shows them"]};
            {_, Others} -> self() ! {left, length(Others)}, {ok, {Others, closed}}
        end
    end,
    case halley_server_keys_file:change(DataDir, Remove) of
        ok -> {ok, ["revoked ", Name, $\n], warning(receive {left, Left} -> Left end)};
        {error, _} = Error -> Error
    end.

warning(0) ->
    "That was the last key: the API refuses everybody now. `./halley key create` makes another "
    "one; `./halley key open` opens an API listener on loopback to every process of the "
    "machine.\n";
warning(_) ->
    [].

%% Said by somebody, not by a file that is missing.
open(DataDir) ->
    Open = fun
        ({[], _}) -> {ok, {[], open}};
        ({[_ | _], _}) -> {error, "there are server keys; revoke them first, `./halley key list` "
                                  "shows them"}
    end,
    case halley_server_keys_file:change(DataDir, Open) of
        ok -> {ok, "opened\n", "An API listener on loopback needs no key now: every process of "
                               "the machine may use it.\n"};
        {error, _} = Error -> Error
    end.

table([], open) ->
    "there is no server key\n";
table([], _) ->
    "there is no server key, and without one the API refuses everybody; `./halley key open` opens "
    "it on loopback\n";
table(Keys, _) ->
    Rows = [{"NAME", "ID", "SCOPES", "MADE"} |
            [{Name, Id, lists:join(",", [atom_to_list(Scope) || Scope <- Scopes]),
              calendar:system_time_to_rfc3339(CreatedS, [{offset, "Z"}])}
             || #{name := Name, id := Id, scopes := Scopes, created_s := CreatedS} <- Keys]],
    Width = lists:max([iolist_size(Name) || {Name, _, _, _} <- Rows]),
    [io_lib:format("~*ts  ~-16ts  ~-26ts  ~ts~n", [-Width, Name, Id, Scopes, Made])
     || {Name, Id, Scopes, Made} <- Rows].
