%% The behaviour of codecs: how values of some types are written and read. Applications bring
%% their own by the connect option `codecs' or `epgsql:update_type_cache/2'.
%%
%% A codec knows types by their names; OIDs are known to `epgsql_binary' and `epgsql_oid_db' alone.
-module(epgsql_codec).

-export([init_mods/2, encode/4, decode/4, decode_text/4]).

-export_type([codec_state/0, codec_mod/0, codec_entry/0]).

-type codec_state() :: any().
-type codec_mod() :: module().
-type codec_entry() :: {epgsql:type_name(), codec_mod(), codec_state()}.

%% Once a connection, or once a change of its codecs.
-callback init(Options :: any(), epgsql_sock:pg_sock()) -> codec_state().
-callback names() -> [epgsql:type_name()].
%% Binary format, without its length.
-callback encode(Value :: any(), epgsql:type_name(), codec_state()) -> iodata().
-callback decode(binary(), epgsql:type_name(), codec_state()) -> any().
%% Text format, as `squery' has it. Without it the text itself is the value.
-callback decode_text(binary(), epgsql:type_name(), codec_state()) -> any().
-optional_callbacks([decode_text/3]).

%% Of a name that several codecs have, the first codec in the list counts.
-spec init_mods([{codec_mod(), any()}], epgsql_sock:pg_sock()) -> [codec_entry()].
init_mods(Codecs, Session) ->
    Entries = [{Name, {Name, Module, State}}
               || {Module, Options} <- lists:reverse(Codecs),
                  State <- [Module:init(Options, Session)],
                  Name <- Module:names()],
    lists:sort(maps:values(maps:from_list(Entries))).

-spec encode(codec_mod(), any(), epgsql:type_name(), codec_state()) -> iodata().
encode(Module, Value, Name, State) -> Module:encode(Value, Name, State).

-spec decode(codec_mod(), binary(), epgsql:type_name(), codec_state()) -> any().
decode(Module, Cell, Name, State) -> Module:decode(Cell, Name, State).

-spec decode_text(codec_mod(), binary(), epgsql:type_name(), codec_state()) -> any().
decode_text(Module, Cell, Name, State) -> Module:decode_text(Cell, Name, State).
