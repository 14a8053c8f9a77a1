%% The meaning of the keys `postgres.*' of the configuration together: which PostgreSQL, and whether
%% follows and events come from it. Pure; it reads no file.
-module(halley_postgres_config).

-export([settings/1, name/1]).
-export_type([settings/0, table/0, server/0]).

%% A table whose rows are follows. Names are as PostgreSQL keeps them. `text': as it was written.
-type table() :: #{schema := binary(), name := binary(), user := binary(), subject := binary(),
                   where := none | binary(), text := binary()}.
%% `password': none, or where to take it from for each connection. `certificate': of the client,
%% with its key. `said': the key that says where the server is.
-type server() :: #{host := string(), port := inet:port_number(), database := string(),
                    user := string(), tls := boolean(), tls_ca := none | file:filename(),
                    certificate := none | {file:filename(), file:filename()},
                    password := none | fun(() -> binary()) | {file, file:filename()},
                    said := string()}.
%% The server is a fun, as its password can't be printed then. `publish': `outbox' is the outbox
%% alone, without a stream. `writes': the table that Halley's own
%% API writes.
-type settings() :: #{server := fun(() -> server()), follows := [table()],
                      publish := boolean() | outbox, writes := none | table(),
                      slot := binary(), publication := binary()}.

-define(NAME_BYTES_MAX, 63).

%% Values of the application `halley_postgres', as the schema names them. The error is one line.
-spec settings(#{atom() => term()}) -> none | {ok, settings()} | {error, iodata()}.
settings(Keys) ->
    try
        Tables = tables(maps:get(follows, Keys, "")),
        Writes = writes(maps:get(store_backend, Keys, embedded), Tables),
        case {server(Keys), Tables, maps:get(publish, Keys, off)} of
            {none, [], off} -> none;
            {none, [_ | _], _} -> bad("postgres.follows: set postgres.url or postgres.host, too");
            {none, [], on} -> bad("postgres.publish: set postgres.url or postgres.host, too");
            {none, [], outbox} -> bad("postgres.publish: set postgres.url or postgres.host, too");
            {_, [_ | _], outbox} ->
                bad("postgres.publish: outbox is for a role that may not replicate, and "
                    "postgres.follows needs that; set it to on, which takes the outbox as well");
            {Server, _, Publish} ->
                {ok, #{server => fun() -> Server end, follows => Tables, writes => Writes,
                       publish => maps:get(Publish, #{on => true, off => false}, Publish),
                       slot => bytes(maps:get(slot, Keys, "halley")),
                       publication => bytes(maps:get(publication, Keys, "halley"))}}
        end
    catch
        throw:{bad, Line} -> {error, Line}
    end.

-spec bad(iodata()) -> no_return().
bad(Line) -> throw({bad, Line}).

bytes(Text) -> unicode:characters_to_binary(Text).

%% Of a slot, as PostgreSQL allows it, and of a publication.
-spec name(string()) -> boolean().
name(Name) ->
    length(Name) >= 1 andalso length(Name) =< ?NAME_BYTES_MAX andalso
        lists:all(fun(C) -> C >= $a andalso C =< $z orelse C >= $0 andalso C =< $9
                                orelse C =:= $_ end, Name).

%% --- the server --------------------------------------------------------------------------------

server(#{url := _, host := _}) ->
    bad("postgres.host: postgres.url is set as well; one of them says where PostgreSQL is");
server(#{url := Url} = Keys) ->
    with_keys((url(Url))#{said => "postgres.url"}, Keys);
server(#{host := Host} = Keys) ->
    with_keys(#{host => Host, said => "postgres.host"}, Keys);
server(_) ->
    none.

with_keys(Said, Keys) ->
    #{host := Host} = Server = maps:merge(
        #{port => 5432, database => "postgres", user => "halley", password => none},
        maps:merge(Said, maps:with([port, database, user], Keys))),
    Tls = tls(maps:get(tls, Keys, auto), maps:get(tls, Said, auto), Host),
    Server#{tls => Tls,
            tls_ca => case Keys of
                          #{tls_ca := File} -> filename:absname(File);
                          #{} -> none
                      end,
            certificate => certificate(Keys, Tls), password => password(Keys, Server)}.

certificate(#{tls_certificate := _}, false) ->
    bad("postgres.tls_certificate: there is no TLS to this server; set postgres.tls to on");
certificate(#{tls_certificate := File, tls_key := Key}, true) ->
    {filename:absname(File), filename:absname(Key)};
certificate(#{tls_certificate := _}, _) ->
    bad("postgres.tls_certificate: set postgres.tls_key, too");
certificate(#{tls_key := _}, _) ->
    bad("postgres.tls_key: set postgres.tls_certificate, too");
certificate(_, _) -> none.

tls(auto, auto, Host) -> not is_local(Host);
tls(auto, Said, _) -> Said;
tls(on, _, _) -> true;
tls(off, _, _) -> false.

is_local("/" ++ _) -> true;
is_local(Host) -> lists:member(Host, ["localhost", "::1"]) orelse lists:prefix("127.", Host).

password(#{password_file := File}, #{password := none}) -> {file, filename:absname(File)};
password(#{password_file := _}, _) ->
    bad("postgres.password_file: postgres.url has a password as well; keep one");
password(_, #{password := Password}) -> Password.

%% What is wrong with it is said without showing it: it may have a password. Letters beyond ASCII
%% may stand as they are, as psql takes them.
url(Url) ->
    case uri_string:parse(lists:flatmap(fun encoded/1, Url)) of
        #{scheme := Scheme, host := Host} = Parts
          when Scheme =:= "postgres"; Scheme =:= "postgresql" ->
            {User, Password} = user(maps:get(userinfo, Parts, "")),
            maps:filter(fun(_, Value) -> Value =/= absent end,
                        #{host => case Host of "" -> "localhost"; _ -> decoded(Host) end,
                          port => port(maps:get(port, Parts, absent)), user => User,
                          password => Password, database => database(maps:get(path, Parts)),
                          tls => sslmode(maps:get(query, Parts, ""))});
        _ ->
            bad("postgres.url: must be as postgres://user:password@host:5432/database; in a user, "
                "a password and a database each character that is no letter, digit, - . _ or ~ "
                "stands as %XX, as %40 for @, %3A for : and %23 for #")
    end.

encoded(C) when C > 127 ->
    lists:append([[$%, hex(Byte bsr 4), hex(Byte band 15)]
                  || Byte <- binary_to_list(unicode:characters_to_binary([C]))]);
encoded(C) -> [C].

hex(Digit) when Digit < 10 -> $0 + Digit;
hex(Digit) -> $A + Digit - 10.

port(absent) -> absent;
port(undefined) -> absent;
port(Port) when Port >= 1, Port =< 65535 -> Port;
port(_) -> bad("postgres.url: its port must be a whole number from 1 to 65535").

user("") -> {absent, absent};
user(Info) ->
    case string:split(Info, ":") of
        [User, Password] ->
            Bytes = unescaped(Password, <<>>),
            {name_or_absent(User), fun() -> Bytes end};
        [User] -> {decoded(User), absent}
    end.

name_or_absent("") -> absent;
name_or_absent(User) -> decoded(User).

database([$/ | [_ | _] = Name]) -> decoded(Name);
database(_) -> absent.

%% A password may be any bytes, a name is text.
decoded(Text) ->
    case unicode:characters_to_list(unescaped(Text, <<>>)) of
        Decoded when is_list(Decoded) -> Decoded;
        _ -> bad("postgres.url: a name in it isn't UTF-8 text once its escapes (%XX) are decoded")
    end.

unescaped([$%, High, Low | Rest], Done) ->
    case {digit(High), digit(Low)} of
        {0, 0} -> bad("postgres.url: has %00, which PostgreSQL takes in no name and no password");
        {H, L} when is_integer(H), is_integer(L) -> unescaped(Rest, <<Done/binary, H:4, L:4>>);
        _ -> unescaped([$%], Done)
    end;
unescaped([$% | _], _) ->
    bad("postgres.url: has a percent sign that isn't the beginning of an escape; it is %25 itself");
unescaped([C | Rest], Done) -> unescaped(Rest, <<Done/binary, C>>);
unescaped([], Done) -> Done.

digit(C) when C >= $0, C =< $9 -> C - $0;
digit(C) when C >= $a, C =< $f -> C - $a + 10;
digit(C) when C >= $A, C =< $F -> C - $A + 10;
digit(_) -> none.

sslmode("") -> absent;
sslmode(Query) ->
    case uri_string:dissect_query(Query) of
        [{"sslmode", "disable"}] -> false;
        [{"sslmode", Mode}] when Mode =:= "require"; Mode =:= "verify-full" -> true;
        _ -> bad("postgres.url: of what stands behind `?' only sslmode=disable, sslmode=require "
                 "and sslmode=verify-full are known, and the last two mean the same")
    end.

%% --- the tables --------------------------------------------------------------------------------

%% A row that Halley writes has the two columns alone: it may not fulfil a condition.
writes(postgres, []) ->
    bad("store.backend: postgres needs postgres.follows; its first table is the one that is "
        "written");
writes(postgres, [#{where := none} = First | _]) ->
    First;
writes(postgres, _) ->
    bad("store.backend: postgres writes the first table of postgres.follows, and that has a "
        "`where (...)', which what is written may not fulfil; put a table without one first");
writes(_, _) ->
    none.

%% `public.follows(follower_id, followed_id) where (accepted); ...'
tables(Text) ->
    Tables = scan(string:trim(Text)),
    Names = [{Schema, Name} || #{schema := Schema, name := Name} <- Tables],
    case Names -- lists:usort(Names) of
        [] -> Tables;
        _ -> bad("postgres.follows: names a table twice")
    end.

scan("") -> [];
scan(Text) ->
    {First, AfterFirst} = identifier(Text),
    {Schema, Name, AfterName} = case AfterFirst of
        "." ++ More ->
            {Second, Rest} = identifier(More),
            {First, Second, Rest};
        _ -> {"public", First, AfterFirst}
    end,
    {User, AfterUser} = identifier(expect($(, AfterName)),
    {Subject, AfterSubject} = identifier(expect($,, AfterUser)),
    {Where, Rest1} = where(space(expect($), AfterSubject))),
    Length = string:length(Text) - string:length(Rest1),
    [#{schema => bytes(Schema), name => bytes(Name), user => bytes(User),
       subject => bytes(Subject), where => Where,
       text => bytes(string:trim(string:slice(Text, 0, Length)))} | next(space(Rest1))].

next("") -> [];
next(";" ++ Rest) -> scan(space(Rest));
next(_) -> wrong().

expect(C, Text) ->
    case space(Text) of
        [C | Rest] -> space(Rest);
        _ -> wrong()
    end.

space(Text) -> string:trim(Text, leading).

-spec wrong() -> no_return().
wrong() ->
    bad("postgres.follows: must be as public.follows(follower_id, followed_id), with "
        "`where (...)' behind it for a part of the rows, and `;' between tables").

%% As PostgreSQL reads it: small letters, but for what stands in quotes.
identifier([$" | Rest]) -> quoted(Rest, []);
identifier([C | _] = Text) when C >= $a, C =< $z; C >= $A, C =< $Z; C =:= $_; C > 127 ->
    {Name, Rest} = lists:splitwith(fun(Each) ->
        Each >= $a andalso Each =< $z orelse Each >= $A andalso Each =< $Z
            orelse Each >= $0 andalso Each =< $9 orelse Each =:= $_ orelse Each > 127
    end, Text),
    {string:lowercase(Name), Rest};
identifier(_) -> wrong().

quoted([$", $" | Rest], Name) -> quoted(Rest, [$" | Name]);
quoted([$" | Rest], [_ | _] = Name) -> {lists:reverse(Name), Rest};
quoted([C | Rest], Name) when C =/= $" -> quoted(Rest, [C | Name]);
quoted(_, _) -> wrong().

%% Up to the parenthesis that ends it; those in quotes don't count.
where(Text) ->
    case {string:lowercase(string:slice(Text, 0, 5)), string:slice(Text, 5)} of
        {"where", Rest} ->
            case space(Rest) of
                "(" ++ Inside -> condition(Inside, 1, none, []);
                _ -> wrong()
            end;
        _ -> {none, Text}
    end.

condition([$) | Rest], 1, none, Acc) -> {bytes(lists:reverse(Acc)), Rest};
condition([$) | Rest], Depth, none, Acc) -> condition(Rest, Depth - 1, none, [$) | Acc]);
condition([$( | Rest], Depth, none, Acc) -> condition(Rest, Depth + 1, none, [$( | Acc]);
condition([C | Rest], Depth, none, Acc) when C =:= $'; C =:= $" ->
    condition(Rest, Depth, C, [C | Acc]);
condition([C | Rest], Depth, C, Acc) -> condition(Rest, Depth, none, [C | Acc]);
condition([C | Rest], Depth, Quote, Acc) -> condition(Rest, Depth, Quote, [C | Acc]);
condition([], _, _, _) -> wrong().
