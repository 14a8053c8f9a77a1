%% inet, cidr, macaddr, macaddr8: addresses as `inet' has them, `{Address, Bits}' for networks,
%% tuples of bytes.
%%
%% inet is an address, or `{Address, Bits}' where its mask isn't the whole address; cidr is always
%% `{Address, Bits}'.
-module(epgsql_codec_net).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-export_type([data/0]).

-type data() :: inet:ip_address() | {inet:ip_address(), Bits :: 0..128} | tuple().
-type name() :: inet | cidr | macaddr | macaddr8.

%% PostgreSQL's own numbers for the families, whatever the system's are.
-define(IPV4, 2).
-define(IPV6, 3).

-spec init(any(), epgsql_sock:pg_sock()) -> [].
init(_, _) -> [].

-spec names() -> [name()].
names() -> [inet, cidr, macaddr, macaddr8].

-spec encode(data(), name(), any()) -> binary().
encode(Mac, macaddr, _) when tuple_size(Mac) =:= 6 -> list_to_binary(tuple_to_list(Mac));
encode(Mac, macaddr8, _) when tuple_size(Mac) =:= 8 -> list_to_binary(tuple_to_list(Mac));
encode({Address, Bits}, Name, _) when Name =:= inet; Name =:= cidr -> address(Address, Bits, Name);
encode(Address, Name, _) when tuple_size(Address) =:= 4, (Name =:= inet orelse Name =:= cidr) ->
    address(Address, 32, Name);
encode(Address, Name, _) when tuple_size(Address) =:= 8, (Name =:= inet orelse Name =:= cidr) ->
    address(Address, 128, Name).

address({A, B, C, D}, Bits, Name) when Bits >= 0, Bits =< 32 ->
    <<?IPV4, Bits, (is_cidr(Name)), 4, A, B, C, D>>;
address(Address, Bits, Name) when tuple_size(Address) =:= 8, Bits >= 0, Bits =< 128 ->
    Parts = << <<Part:16>> || Part <- tuple_to_list(Address) >>,
    <<?IPV6, Bits, (is_cidr(Name)), 16, Parts/binary>>.

is_cidr(cidr) -> 1;
is_cidr(inet) -> 0.

-spec decode(binary(), name(), any()) -> data().
decode(<<Mac:6/binary>>, macaddr, _) -> list_to_tuple(binary_to_list(Mac));
decode(<<Mac:8/binary>>, macaddr8, _) -> list_to_tuple(binary_to_list(Mac));
decode(<<?IPV4, Bits, _, 4, A, B, C, D>>, Name, _) -> masked({A, B, C, D}, Bits, 32, Name);
decode(<<?IPV6, Bits, _, 16, Address:16/binary>>, Name, _) ->
    masked(list_to_tuple([Part || <<Part:16>> <= Address]), Bits, 128, Name).

masked(Address, Whole, Whole, inet) -> Address;
masked(Address, Bits, _, _) -> {Address, Bits}.
