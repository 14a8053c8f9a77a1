%% Reads a `ketama.servers' file as libketama does, quirks included.
%%
%% A line is a server's name, tabs or spaces, and its weight in decimal. Lines that begin with `#'
%% or have less than two characters, the end of the line counted, are skipped. The quirks
%% (RJ/ketama 18cf9a7, libketama/ketama.c):
%%
%% - The last character of the weight is dropped, as if it were the end of the line: before a space,
%%   or on a last line without one, the weight loses its last digit.
%% - What follows the weight's digits is ignored, and so is the rest of the line.
%% - A line is read in pieces of 126 bytes, each a line of its own; a piece ends at a NUL.
%% - A name has at most 23 bytes.
%% - One bad line refuses the whole file.
%%
%% Where libketama's behaviour is undefined the file is refused: a line of blanks alone without an
%% end, and a negative weight. libketama reads past a name of 22 or 23 bytes; this doesn't.
%%
%% `parse/1' is pure. It is not a judge of names; `ketama_ring' is.
-module(ketama_servers_file).

-export([read/1, parse/1, explain/1]).
-export_type([reason/0]).

-include_lib("kernel/include/file.hrl").

-type server() :: {Name :: binary(), Weight :: pos_integer()}.
-type bad_line() :: no_name | name_too_long | no_weight | bad_weight.
-type reason() :: {line, pos_integer(), bad_line()} | no_servers | too_large | not_regular
                | {file, file:posix() | badarg | terminated | system_limit}.

%% With lines as short as they come, some four million servers.
-define(FILE_BYTES_MAX, (1 bsl 26)).
-define(LINE_BYTES_MAX, 126).
-define(NAME_BYTES_MAX, 23).
-define(WEIGHT_MAX, (1 bsl 63 - 1)).

%% Of a regular file: to open a pipe might wait for ever.
-spec read(file:name_all()) -> {ok, Content :: binary()} | {error, reason()}.
read(Path) ->
    case file:read_file_info(Path, [raw]) of
        {ok, #file_info{type = regular}} -> open(file:open(Path, [read, raw, binary]));
        {ok, _} -> {error, not_regular};
        {error, Reason} -> {error, {file, Reason}}
    end.

open({ok, File}) ->
    try content(file:read(File, ?FILE_BYTES_MAX + 1)) after file:close(File) end;
open({error, Reason}) ->
    {error, {file, Reason}}.

content({ok, Content}) when byte_size(Content) > ?FILE_BYTES_MAX -> {error, too_large};
content({ok, Content}) -> {ok, Content};
content(eof) -> {ok, <<>>};
content({error, Reason}) -> {error, {file, Reason}}.

-spec parse(Content :: binary()) -> {ok, [server(), ...]} | {error, reason()}.
parse(Content) -> parse(Content, 1, []).

parse(<<>>, _, []) ->
    {error, no_servers};
parse(<<>>, _, Servers) ->
    {ok, lists:reverse(Servers)};
parse(Content, Line, Servers) ->
    {Piece, Rest, Lines} = piece(Content),
    case server(before_nul(Piece)) of
        skip -> parse(Rest, Line + Lines, Servers);
        {error, Reason} -> {error, {line, Line, Reason}};
        Server -> parse(Rest, Line + Lines, [Server | Servers])
    end.

%% With its newline, if that is in it.
piece(Content) ->
    Seen = min(byte_size(Content), ?LINE_BYTES_MAX),
    {Size, Lines} = case binary:match(Content, <<"\n">>, [{scope, {0, Seen}}]) of
                        {At, 1} -> {At + 1, 1};
                        nomatch -> {Seen, 0}
                    end,
    <<Piece:Size/binary, Rest/binary>> = Content,
    {Piece, Rest, Lines}.

before_nul(Piece) -> hd(binary:split(Piece, <<0>>)).

server(Text) when byte_size(Text) < 2 -> skip;
server(<<$#, _/binary>>) -> skip;
server(Text) ->
    {Name, Rest} = token(Text),
    {Weight, _} = token(Rest),
    case weight(Weight) of
        _ when Name =:= <<>> -> {error, no_name};
        _ when byte_size(Name) > ?NAME_BYTES_MAX -> {error, name_too_long};
        {error, _} = Error -> Error;
        Number -> {binary:copy(Name), Number}
    end.

token(<<Blank, Rest/binary>>) when Blank =:= $\s; Blank =:= $\t -> token(Rest);
token(Text) ->
    case binary:split(Text, [<<" ">>, <<"\t">>]) of
        [Token, Rest] -> {Token, Rest};
        [Token] -> {Token, <<>>}
    end.

weight(<<>>) -> {error, no_weight};
weight(Token) -> sign(binary:part(Token, 0, byte_size(Token) - 1)).

%% C's `isspace', as `strtol' skips it.
sign(<<Space, Rest/binary>>) when Space =:= $\s; Space >= $\t, Space =< $\r -> sign(Rest);
sign(<<$+, Digits/binary>>) -> number(Digits, 0);
sign(Digits) -> number(Digits, 0).

number(<<Digit, Rest/binary>>, Number) when Digit >= $0, Digit =< $9, Number =< ?WEIGHT_MAX ->
    number(Rest, Number * 10 + Digit - $0);
number(_, Number) when Number > 0, Number =< ?WEIGHT_MAX ->
    Number;
number(_, _) ->
    {error, bad_weight}.

%% One sentence's worth, for a log.
-spec explain(reason() | ketama_mode:reason()) -> string().
explain({line, Line, no_name}) -> at(Line, "there is no name");
explain({line, Line, name_too_long}) ->
    at(Line, io_lib:format("the name has more than ~b bytes", [?NAME_BYTES_MAX]));
explain({line, Line, no_weight}) -> at(Line, "there is no weight");
explain({line, Line, bad_weight}) ->
    at(Line, "the weight without its last character, which is taken for the end of the line, is "
             "no number from 1 on");
explain(no_servers) -> "it has no servers";
explain(too_large) -> format("it has more than ~b bytes", [?FILE_BYTES_MAX]);
explain(not_regular) -> "it is no regular file";
explain({file, Reason}) -> file:format_error(Reason);
explain({bad_server, Server}) -> format("no server for this mode: ~tP", [Server, 20]);
explain({too_many_servers, Most}) -> format("it has more than ~b servers", [Most]);
explain(weights_too_large) -> "the weights add up to more than 64 bits";
explain({bad_option, Option}) -> format("no good option: ~tP", [Option, 20]).

at(Line, Text) -> format("line ~b: ~ts", [Line, Text]).

format(Format, Values) -> lists:flatten(io_lib:format(Format, Values)).
