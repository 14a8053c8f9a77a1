%% The payload of OPERATION (protocol/link.md 20), as the handler sees it.
%%
%% Pure: bytes in, terms out, and back. It knows which fields there are, not what they mean: the
%% values of members are the text that the client wrote, and the handler judges them. Like
%% `halley_edge_fields' it throws the clause that a field breaks.
-module(halley_edge_operation).

-export([decode/1, encode/3, bytes/1]).

-import(halley_edge_fields, [breaks/3, conn/1]).

%% The payload of OPERATION. What is given refers to it.
-spec decode(binary()) ->
    {operation, halley_edge_codec:conn(), Number :: non_neg_integer(),
     halley_requests:operation()}.
decode(<<Conn:64, Number:32, What, L1, User:L1/binary, L2:16, Rights:L2/binary, L3,
         Subject:L3/binary, Last:32, Count:16, List/binary>>) ->
    {operation, conn(Conn), Number,
     #{what => what(What), user => User, rights => Rights, subject => Subject, last => Last,
       members => members(Count, 0, List)}};
decode(_) ->
    cut().

%% Each at most once, as they are in order: so there are few of them, however long the frame is.
members(0, _, <<>>) ->
    [];
members(N, Before, <<Name, Length:32, Text:Length/binary, Rest/binary>>) when N > 0 ->
    Name > Before orelse breaks(<<"20.3">>, "the member ~b behind ~b", [Name, Before]),
    [{name(Name), Text} | members(N - 1, Name, Rest)];
members(_, _, _) ->
    cut().

-spec cut() -> no_return().
cut() ->
    breaks(<<"2.3">>, "an OPERATION that ends too early or too late", []).

%% The payload.
-spec encode(halley_edge_codec:conn(), Number :: non_neg_integer(), halley_requests:operation()) ->
    iodata().
encode(Conn, Number, #{what := What, user := User, rights := Rights, subject := Subject,
                       last := Last, members := Members}) ->
    [<<Conn:64, Number:32, (number(What, whats())), (byte_size(User))>>, User,
     <<(byte_size(Rights)):16>>, Rights, byte_size(Subject), Subject,
     <<Last:32, (length(Members)):16>>
     | [[<<(number(Name, names())), (byte_size(Text)):32>>, Text] || {Name, Text} <- Members]].

what(Number) -> named(Number, whats(), <<"20.2">>).

name(Number) -> named(Number, names(), <<"20.3">>).

named(Number, Table, Clause) ->
    case lists:keyfind(Number, 1, Table) of
        {_, Name} -> Name;
        false -> breaks(Clause, "no operation, or member of one, has the number ~b", [Number])
    end.

number(Name, Table) ->
    {Number, _} = lists:keyfind(Name, 2, Table),
    Number.

whats() ->
    [{1, publish}, {2, follow}, {3, unfollow}, {4, subscribe}, {5, unsubscribe}, {6, state}].

names() ->
    [{1, <<"subject">>}, {2, <<"subjects">>}, {3, <<"to">>}, {4, <<"data">>}, {5, <<"id">>},
     {6, <<"ack">>}, {7, <<"keep">>}].

%% How much there is to parse.
-spec bytes(halley_requests:operation()) -> non_neg_integer().
bytes(#{members := Members}) ->
    lists:sum([byte_size(Text) || {_, Text} <- Members]).
