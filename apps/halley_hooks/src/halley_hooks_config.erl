%% The meaning of the keys `hooks.*' and `auth.connect_*' of the configuration together: where hooks
%% go, which are sent, and which server decides about connects. Pure; it reads no file.
-module(halley_hooks_config).

-export([settings/1, matches/2]).
-export_type([settings/0, connect/0, target/0, event/0, patterns/0]).

-type event() :: opened | closed | published | undelivered | occupied | vacated.
%% `path': with the query. `authority': as the header `host' has it.
-type target() :: #{tls := boolean(), host := string(), port := inet:port_number(),
                    path := binary(), authority := binary(), ca := none | file:filename(),
                    secret_file := file:filename()}.
-type patterns() :: [halley_pattern:pattern()].
%% The target is a fun: the address of a hook may be a secret, and a fun isn't printed. Without
%% hooks.url it is `none', and nothing is told.
-type settings() :: #{target := none | fun(() -> target()), events := [event()],
                      users := patterns(), subjects := patterns(),
                      closed_after_ms := pos_integer(), connect := none | connect()}.
%% `down': what becomes of who connects while nobody judges.
-type connect() :: #{target := fun(() -> target()), timeout_ms := pos_integer(),
                     ttl_ms := pos_integer(), down := refuse | allow}.

-define(EVENTS, [opened, closed, published, undelivered, occupied, vacated]).

%% Values of the application `halley_hooks', as the schema names them. The error is one line.
-spec settings(#{atom() => term()}) -> none | {ok, settings()} | {error, iodata()}.
settings(#{url := _} = Keys) -> both(Keys);
settings(#{connect_url := _} = Keys) -> both(Keys);
settings(Keys) ->
    case [Key || Key <- [events, secret_file, tls_ca], is_map_key(Key, Keys)] of
        [] -> none;
        [Key | _] -> {error, ["hooks.", atom_to_list(Key), ": set hooks.url, too"]}
    end.

both(Keys) ->
    try
        {ok, #{target => maybe_target("hooks.url", url, Keys),
               events => case Keys of
                             #{url := _} -> events(maps:get(events, Keys, ""));
                             #{} -> []
                         end,
               users => patterns("hooks.users", maps:get(users, Keys, "*")),
               subjects => patterns("hooks.subjects", maps:get(subjects, Keys, "*")),
               closed_after_ms => maps:get(closed_after_ms, Keys, 15000),
               connect => connect(Keys)}}
    catch
        throw:{bad, Line} -> {error, Line}
    end.

connect(Keys) ->
    case maybe_target("auth.connect_url", connect_url, Keys) of
        none -> none;
        Target -> #{target => Target, timeout_ms => maps:get(connect_timeout_ms, Keys, 3000),
                    ttl_ms => maps:get(connect_ttl_ms, Keys, 60000),
                    down => maps:get(connect_down, Keys, refuse)}
    end.

maybe_target(Name, Key, Keys) ->
    case Keys of
        #{Key := Url} ->
            Target = (target(Name, Url))#{secret_file => secret_file(Keys),
                                          ca => case Keys of
                                                    #{tls_ca := Ca} -> filename:absname(Ca);
                                                    #{} -> none
                                                end},
            fun() -> Target end;
        #{} -> none
    end.

secret_file(#{secret_file := Name}) -> filename:absname(Name);
secret_file(_) ->
    bad("hooks.secret_file: set it to a file with a secret, which signs requests; "
        "`openssl rand -hex 32` makes one").

-spec bad(iodata()) -> no_return().
bad(Line) -> throw({bad, Line}).

%% What is wrong with it is said without showing it.
target(Name, Url) ->
    case uri_string:parse(Url) of
        #{userinfo := _} ->
            bad([Name, ": must have no name or password in it; requests are signed, which says "
                       "who sends them"]);
        #{fragment := _} ->
            bad([Name, ": must have no # in it; what is behind one isn't sent"]);
        #{scheme := Scheme, host := [_ | _] = Host} = Parts
          when Scheme =:= "http"; Scheme =:= "https" ->
            IsTls = Scheme =:= "https",
            Port = maps:get(port, Parts, case IsTls of true -> 443; false -> 80 end),
            is_integer(Port) andalso Port > 0 andalso Port < 65536 orelse wrong(Name),
            #{tls => IsTls, host => string:trim(Host, both, "[]"), port => Port,
              authority => authority(Host, Parts),
              path => path(Name, maps:get(path, Parts, ""), maps:get(query, Parts, none))};
        _ ->
            wrong(Name)
    end.

-spec wrong(string()) -> no_return().
wrong(Name) -> bad([Name, ": must be as https://app.example.org/halley-hooks"]).

authority(Host, Parts) ->
    Shown = case lists:member($:, Host) of true -> ["[", Host, "]"]; false -> Host end,
    iolist_to_binary([Shown | [[":", integer_to_list(Port)] || #{port := Port} <- [Parts]]]).

%% As it stands in a request's line: plain ASCII without spaces.
path(Name, Path, Query) ->
    Text = iolist_to_binary([case Path of "" -> "/"; _ -> unicode:characters_to_binary(Path) end
                             | [["?", unicode:characters_to_binary(Query)] || Query =/= none]]),
    case re:run(Text, "[,;|]\\s*https?://", [{capture, none}]) of
        match -> bad([Name, ": is one address; your server can pass on what it gets there"]);
        nomatch -> ok
    end,
    case [C || <<C>> <= Text, C =< 32 orelse C >= 127] of
        [] -> Text;
        _ -> bad([Name, ": has a space or a letter that must be written as %20 and the like"])
    end.

events(Text) ->
    Names = words(Text),
    Names =/= [] orelse
        bad(["hooks.events: say what is to be told, of ", lists:join(", ", names())]),
    [case [Event || Event <- ?EVENTS, atom_to_list(Event) =:= Name] of
         [Event] -> Event;
         [] -> bad(["hooks.events: ", Name, " is none of ", lists:join(", ", names())])
     end || Name <- Names].

names() -> [atom_to_list(Event) || Event <- ?EVENTS].

patterns(Key, Text) ->
    case [halley_pattern:new(unicode:characters_to_binary(Word)) || Word <- words(Text)] of
        [] -> bad([Key, ": must be a list such as user/*,admin"]);
        Patterns -> Patterns
    end.

words(Text) ->
    [Word || Part <- string:split(Text, ",", all), (Word = string:trim(Part)) =/= ""].

-spec matches(binary(), patterns()) -> boolean().
matches(_, [{prefix, <<>>}]) -> true;
matches(Id, Patterns) ->
    halley_pattern:is_any_match(Patterns, Id).
