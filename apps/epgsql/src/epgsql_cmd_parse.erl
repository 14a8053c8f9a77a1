%% Parses a statement and has it described: Parse, Describe, Flush.
-module(epgsql_cmd_parse).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([init/1, execute/2, handle_message/4]).

-export_type([response/0]).

-type response() :: {ok, #statement{}} | {error, epgsql:query_error()}.

-record(parse, {sql :: iodata(), types :: [epgsql:epgsql_type() | undefined],
                statement :: #statement{}}).

-spec init({iodata(), iodata(), [epgsql:epgsql_type() | undefined]}) -> #parse{}.
init({Name, Sql, Types}) ->
    #parse{sql = Sql, types = Types, statement = #statement{name = Name}}.

-spec execute(epgsql_session:session(), #parse{}) -> epgsql_command:execute_return().
execute(Session, #parse{sql = Sql, types = Types, statement = #statement{name = Name}} = State) ->
    Oids = epgsql_wire:encode_types(Types, epgsql_session:get_codec(Session)),
    {send_multi, [epgsql_wire:encode_parse(Name, Sql, Oids),
                  epgsql_wire:encode_describe(statement, Name), epgsql_wire:encode_flush()],
     Session, State}.

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(), #parse{}) ->
          epgsql_command:handle_message_return().
handle_message(?PARSE_COMPLETE, _, Session, _) ->
    {noaction, Session};
handle_message(Type, Payload, Session, #parse{statement = Statement} = State) ->
    case epgsql_cmd_describe_statement:handle_message(Type, Payload, Session, Statement) of
        {noaction, Session1, Described} ->
            {noaction, Session1, State#parse{statement = Described}};
        Answer -> Answer
    end.
