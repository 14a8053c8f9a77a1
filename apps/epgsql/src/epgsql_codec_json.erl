%% json, jsonb: their text as a binary. With `{epgsql_codec_json, Module}' or
%% `{epgsql_codec_json, {Module, EncodeOptions, DecodeOptions}}' the module's terms instead.
-module(epgsql_codec_json).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-export_type([json_mod/0]).

-type json_mod() :: module() | {module(), EncodeOptions :: any(), DecodeOptions :: any()}.
-type name() :: json | jsonb.

%% What such a module has, one of each pair. Jiffy, jsx and others do.
-callback encode(Term :: any()) -> iodata().
-callback encode(Term :: any(), Options :: any()) -> iodata().
-callback decode(binary()) -> any().
-callback decode(binary(), Options :: any()) -> any().
-optional_callbacks([encode/1, encode/2, decode/1, decode/2]).

%% Before the text of jsonb.
-define(VERSION, 1).

-spec init(json_mod() | [], epgsql_sock:pg_sock()) -> json_mod() | [].
init(Options, _) -> Options.

-spec names() -> [name()].
names() -> [json, jsonb].

-spec encode(any(), name(), json_mod() | []) -> iodata().
encode(Value, json, State) -> text(Value, State);
encode(Value, jsonb, State) -> [?VERSION | text(Value, State)].

-spec decode(binary(), name(), json_mod() | []) -> any().
decode(Text, json, State) -> term(Text, State);
decode(<<?VERSION, Text/binary>>, jsonb, State) -> term(Text, State).

text(Text, []) when is_binary(Text) -> Text;
text(Text, []) when is_list(Text) -> [iolist_to_binary(Text)];
text(Term, {Module, Options, _}) -> Module:encode(Term, Options);
text(Term, Module) -> Module:encode(Term).

term(Text, []) -> Text;
term(Text, {Module, _, Options}) -> Module:decode(Text, Options);
term(Text, Module) -> Module:decode(Text).
