%% Finds the OIDs of the types that codecs are given for, and puts the codecs into force.
%%
%% A server that doesn't support this query (those that only look like PostgreSQL) leaves the codecs
%% as they are: the answer is `{ok, []}'.
-module(epgsql_cmd_update_type_cache).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: {ok, [epgsql:type_name()]} | {error, epgsql:query_error()}.

-record(types, {codecs :: [{epgsql_codec:codec_mod(), any()}],
                entries = [] :: [epgsql_codec:codec_entry()],
                found = [] :: [epgsql_oid_db:oid_entry()]}).

-spec init([{epgsql_codec:codec_mod(), any()}]) -> #types{}.
init(Codecs) -> #types{codecs = Codecs}.

-spec execute(epgsql_session:session(), #types{}) -> epgsql_command:execute_return().
execute(Session, #types{codecs = Codecs} = State) ->
    Entries = epgsql_codec:init_mods(Codecs, Session),
    Names = [[$,, quoted(atom_to_binary(Name))] || {Name, _, _} <- Entries],
    Sql = ["SELECT typname, oid, typarray FROM pg_catalog.pg_type"
           " WHERE typname IN (NULL", Names, ") ORDER BY typname, oid DESC"],
    {Type, Payload} = epgsql_wire:encode_query(Sql),
    {send, Type, Payload, Session, State#types{entries = Entries}}.

quoted(Text) -> [$', binary:replace(Text, <<"'">>, <<"''">>, [global]), $'].

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), #types{}) ->
          epgsql_command:handle_message_return().
handle_message(?DATA_ROW, Payload, Session, #types{entries = Entries, found = Found} = State) ->
    case epgsql_backend:cells(Payload) of
        [Text, Oid, ArrayOid] when is_binary(Text), is_binary(Oid), is_binary(ArrayOid) ->
            New = [{Name, number(Oid), number(ArrayOid)}
                   || {Name, _, _} <- Entries, atom_to_binary(Name) =:= Text],
            {noaction, Session, State#types{found = New ++ Found}};
        _ -> error({malformed, data_row})
    end;
handle_message(Type, _, Session, _) when Type =:= ?ROW_DESCRIPTION; Type =:= ?COMMAND_COMPLETE ->
    {noaction, Session};
handle_message(?READY_FOR_QUERY, _, Session, #types{entries = Entries, found = Found}) ->
    case epgsql_session:get_results(Session) of
        [] ->
            Types = epgsql_oid_db:join_codecs_oids(Found, Entries),
            Codec = epgsql_binary:update_codec(Types, epgsql_session:get_codec(Session)),
            Result = {ok, lists:usort([Name || {Name, _, _} <- Found])},
            {finish, Result, Result, epgsql_session:set_attr(codec, Codec, Session)};
        [Error | _] ->
            {finish, Error, Error, Session}
    end;
handle_message(?ERROR, Error, Session, State) ->
    {add_result, {error, Error}, {error, Error}, Session, State};
handle_message(_, _, _, _) ->
    unknown.

number(Text) ->
    try binary_to_integer(Text) catch error:badarg -> error({malformed, data_row}) end.
