%% Logical messages as UTF-8.
%%
%% PostgreSQL converts rows and names for its client, but the content of a message is bytes of the
%% database's encoding. So it is converted here: of an encoding of single bytes by a table that is
%% read from the server. Of SQL_ASCII, where PostgreSQL doesn't know what bytes mean, UTF-8 is
%% accepted. Others (EUC_JP and the like) are taken as far as they are ASCII.
%%
%% A database of SQL_ASCII gets no client encoding but its own (`client/1'): with another one the
%% server ends a stream at the first bytes that aren't of that, again and again.
-module(halley_postgres_encoding).

-export([of_server/1, client/1, new/1, utf8/2, warnings/1]).
-export_type([encoding/0]).

-type encoding() :: utf8 | sql_ascii | {bytes, tuple()} | {other, binary()}.

-spec of_server(epgsql:connection()) -> binary().
of_server(C) ->
    {ok, Name} = epgsql:get_parameter(C, "server_encoding"),
    case Name of
        undefined -> <<"UTF8">>;
        _ -> Name
    end.

%% Settings of a session.
-spec client(epgsql:connection()) -> [{string(), string()}].
client(C) -> [{"client_encoding", "SQL_ASCII"} || of_server(C) =:= <<"SQL_ASCII">>].

-spec new(epgsql:connection()) -> encoding().
new(C) ->
    case of_server(C) of
        <<"UTF8">> -> utf8;
        <<"SQL_ASCII">> -> sql_ascii;
        Name ->
            case epgsql:equery(C, "SELECT pg_encoding_max_length(pg_char_to_encoding($1::name))",
                               [Name]) of
                {ok, _, [{1}]} -> {bytes, list_to_tuple([byte(Byte, C) || Byte <- seq()])};
                {ok, _, [_]} -> {other, Name};
                {error, Error} -> exit({query_failed, Error})
            end
    end.

seq() -> lists:seq(128, 255).

%% The server refuses a byte that means nothing.
byte(Byte, C) ->
    case epgsql:equery(C, "SELECT convert_from($1::bytea, getdatabaseencoding())", [<<Byte>>]) of
        {ok, _, [{Character}]} -> Character;
        {error, _} -> none
    end.

-spec utf8(binary(), encoding()) -> {ok, binary()} | {error, Reason :: binary()}.
utf8(Content, utf8) -> {ok, Content};
utf8(Content, Encoding) ->
    case << <<Byte>> || <<Byte>> <= Content, Byte > 127 >> of
        <<>> -> {ok, Content};
        _ -> converted(Content, Encoding)
    end.

converted(Content, {bytes, Table}) ->
    try {ok, << <<(character(Byte, Table))/binary>> || <<Byte>> <= Content >>}
    catch throw:no_character -> {error, <<"it has bytes that are no letters of the database's "
                                          "encoding">>}
    end;
converted(Content, sql_ascii) ->
    case unicode:characters_to_binary(Content) of
        Content -> {ok, Content};
        _ -> {error, <<"it isn't UTF-8; the encoding of the database is SQL_ASCII, so nobody knows "
                       "what its bytes mean">>}
    end;
converted(_, {other, Name}) ->
    {error, <<"it has letters beyond ASCII, which Halley can't read in the database's encoding ",
              Name/binary>>}.

character(Byte, _) when Byte < 128 -> <<Byte>>;
character(Byte, Table) ->
    case element(Byte - 127, Table) of
        none -> throw(no_character);
        Character -> Character
    end.

-spec warnings(epgsql:connection()) -> [iodata()].
warnings(C) ->
    case new(C) of
        sql_ascii ->
            ["the encoding of the database is SQL_ASCII: PostgreSQL doesn't know what letters "
             "beyond ASCII are. Halley takes them for UTF-8; what isn't UTF-8 is rejected or left "
             "out"];
        {other, Name} ->
            [["the encoding of the database is ", Name, ": what is published by messages "
              "(halley.publish, pg_logical_emit_message) with letters beyond ASCII is rejected. "
              "Insert into halley.outbox instead, or use a database whose encoding is UTF8"]];
        _ -> []
    end.
