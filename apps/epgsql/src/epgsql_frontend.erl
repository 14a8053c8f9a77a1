%% The client's messages: PostgreSQL's documentation, "Message Formats".
%%
%% Pure. Messages are `{Type, Payload}', and `encode/1' makes bytes of them, so that several go out
%% in one write. A name or a text with a NUL in it can't be sent: `error({nul_in_string, What})'.
-module(epgsql_frontend).

-include("protocol.hrl").

-export([encode/1, startup/1, ssl_request/0, cancel_request/2, password/1, sasl_initial/2, sasl/1,
         query/1, parse/3, bind/4, describe/2, execute/2, close/2, plain/1, text/1]).

-export_type([message/0, object/0]).

-type message() :: {byte(), iodata()}.
-type object() :: statement | portal.

-define(PROTOCOL_3_0, 196608).
-define(SSL_REQUEST, 80877103).
-define(CANCEL_REQUEST, 80877102).

-spec encode(message() | [message()]) -> iodata().
encode({Type, Payload}) -> [<<Type, (iolist_size(Payload) + 4):32>> | Payload];
encode(Messages) -> [encode(Message) || Message <- Messages].

%% The first message has no type. Parameters whose names and values hold a NUL are sent as they
%% are: the server refuses them.
-spec startup([{iodata(), iodata()}]) -> iodata().
startup(Parameters) ->
    Payload = [<<?PROTOCOL_3_0:32>>,
               [[Name, 0, text(Value), 0] || {Name, Value} <- Parameters], 0],
    [<<(iolist_size(Payload) + 4):32>> | Payload].

-spec ssl_request() -> binary().
ssl_request() -> <<8:32, ?SSL_REQUEST:32>>.

-spec cancel_request(Pid :: integer(), Key :: integer()) -> binary().
cancel_request(Pid, Key) -> <<16:32, ?CANCEL_REQUEST:32, Pid:?int32, Key:?int32>>.

-spec password(iodata()) -> message().
password(Password) -> {?PASSWORD, string(Password, password)}.

-spec sasl_initial(Mechanism :: binary(), iodata()) -> message().
sasl_initial(Mechanism, Data) ->
    {?SASL_ANY_RESPONSE, [Mechanism, 0, <<(iolist_size(Data)):32>>, Data]}.

-spec sasl(iodata()) -> message().
sasl(Data) -> {?SASL_ANY_RESPONSE, Data}.

-spec query(iodata()) -> message().
query(Sql) -> {?SIMPLEQUERY, string(Sql, query)}.

%% `Types': the count and the OIDs, as bytes.
-spec parse(Name :: iodata(), Sql :: iodata(), Types :: iodata()) -> message().
parse(Name, Sql, Types) -> {?PARSE, [string(Name, statement), string(Sql, query), Types]}.

%% `Parameters': formats and values; `Formats': those of the columns; both with their counts.
-spec bind(iodata(), iodata(), Parameters :: iodata(), Formats :: iodata()) -> message().
bind(Portal, Statement, Parameters, Formats) ->
    {?BIND, [string(Portal, portal), string(Statement, statement), Parameters, Formats]}.

-spec describe(object(), iodata()) -> message().
describe(Object, Name) -> {?DESCRIBE, [object(Object), string(Name, Object)]}.

%% `RowsMax' of 0: all.
-spec execute(iodata(), non_neg_integer()) -> message().
execute(Portal, RowsMax) -> {?EXECUTE, [string(Portal, portal), <<RowsMax:32>>]}.

-spec close(object(), iodata()) -> message().
close(Object, Name) -> {?CLOSE, [object(Object), string(Name, Object)]}.

%% The messages without a payload.
-spec plain(flush | sync | terminate | copy_done) -> message().
plain(flush) -> {?FLUSH, []};
plain(sync) -> {?SYNC, []};
plain(terminate) -> {?TERMINATE, []};
plain(copy_done) -> {?COPY_DONE, []}.

object(statement) -> ?PREPARED_STATEMENT;
object(portal) -> ?PORTAL.

%% A NUL would end the string early, and what is behind it would be read as something else.
string(Text, What) ->
    Bytes = text(Text),
    case binary:match(Bytes, <<0>>) of
        nomatch -> [Bytes, 0];
        _ -> error({nul_in_string, What})
    end.

%% Bytes are sent as they are; what has characters beyond them is UTF-8.
-spec text(unicode:chardata()) -> binary().
text(Text) ->
    try iolist_to_binary(Text)
    catch error:badarg ->
        case unicode:characters_to_binary(Text) of
            Bytes when is_binary(Bytes) -> Bytes;
            _ -> error(badarg)
        end
    end.
