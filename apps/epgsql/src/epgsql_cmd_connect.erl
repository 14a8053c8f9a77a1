%% Opens the connection, proves who the client is, and finds the types that codecs are given for.
%%
%% Of several `hosts' the first is taken that can be reached and is what `target_session_attrs' says
%% (libpq's names). A server reports its kind from PostgreSQL 14 on; an older one is only ever
%% `any'.
%%
%% The next host's turn is when one can't be reached, closes, is starting, stopping or full, or has
%% said nothing when its share of the time is over. The shares of all hosts that are left are equal.
%% The addresses of a name are hosts in its place, which are looked up when its turn comes.
%% Another error ends it all: a wrong password would be wrong at the next host, too.
%%
%% The password is a fun in the state, so that no crash report shows it, and is in no state
%% afterwards. Trust in the server is TLS's; with SCRAM it has to know the password, too.
-module(epgsql_cmd_connect).
-behaviour(epgsql_command).

-include("epgsql.hrl").
-include("protocol.hrl").

-export([opts_hide_password/1, init/1, execute/2, handle_message/4, until/1, left/2]).

-export_type([response/0, connect_error/0]).

-type response() :: connected | {error, connect_error()}.
-type connect_error() ::
        invalid_authorization_specification | invalid_password
      | {unsupported_auth_method, atom() | {unknown, integer()} | {sasl, [binary()]}}
      | {sasl_server_final, any()} | {sasl, epgsql_scram:reason()} | password_missing
      | epgsql_transport:reason() | epgsql:query_error().

-record(connect, {options :: map(),
                  hosts :: [host(), ...],
                  deadline :: epgsql_transport:deadline(),   %% for all hosts
                  until = infinity :: epgsql_transport:deadline(),   %% for the first one
                  stage = open :: open | startup | authentication | ready | types,
                  types :: undefined | epgsql_command:state(),
                  send :: undefined | epgsql_frontend:message(),
                  scram :: undefined | epgsql_scram:state() | verified}).

-type target() :: any | 'read-write' | 'read-only' | primary | standby.
-type host() :: {inet:ip_address() | inet:hostname() | address(), inet:port_number(), target()}.
%% One of a name's.
-type address() :: {at, Name :: inet:hostname(), inet:ip_address()}.

-define(PORT, 5432).
-define(TIMEOUT_MS, 5000).

-spec opts_hide_password(map()) -> map().
opts_hide_password(#{password := Password} = Options) when not is_function(Password) ->
    Options#{password := fun() -> Password end};
opts_hide_password(Options) ->
    Options.

-spec init(map()) -> #connect{}.
init(#{username := _} = Options) ->
    #connect{options = Options, hosts = hosts(Options, maps:get(port, Options, ?PORT)),
             deadline = epgsql_transport:deadline(maps:get(timeout, Options, ?TIMEOUT_MS))}.

hosts(#{hosts := [_ | _] = Hosts} = Options, Port) ->
    Named = [case Host of
                 {Name, Its} when is_integer(Its) -> {Name, Its};
                 _ -> {Host, Port}
             end || Host <- Hosts],
    case maps:get(target_session_attrs, Options, any) of
        'prefer-standby' -> targets(Named, standby) ++ targets(Named, any);
        Target -> targets(Named, Target)
    end;
hosts(#{host := Host} = Options, Port) ->
    hosts(Options#{hosts => [{Host, Port}]}, Port).

targets(Hosts, Target) -> [{Host, Port, Target} || {Host, Port} <- Hosts].

-spec execute(epgsql_session:session(), #connect{}) -> epgsql_command:execute_return().
execute(Session, #connect{stage = open, options = Options, deadline = Deadline,
                          hosts = [{Host, Port, _} | _] = Hosts} = State) ->
    Share = share(epgsql_transport:milliseconds(Deadline), length(Hosts)),
    Its = at(Host, Options#{port => Port}),
    case looked_up(Its, Share) of
        given -> open(Its, Share, Session, State);
        {ok, Addresses} ->
            execute(Session, State#connect{hosts = at_each(Addresses, Host, Port, Hosts)});
        {error, Reason} -> unreached(Reason, Session, State)
    end;
execute(Session, #connect{stage = types, types = Types} = State) ->
    {send, Type, Payload, Session1, Types1} =
        epgsql_cmd_update_type_cache:execute(Session, Types),
    {send, Type, Payload, Session1, State#connect{types = Types1}};
execute(Session, #connect{send = {Type, Payload}} = State) ->
    {send, Type, Payload, Session, State#connect{send = undefined}}.

%% `host' is the name also where an address of it is taken: it is what a certificate has.
at({at, Name, Address}, Options) -> Options#{host => Name, hostaddr => Address};
at(Host, Options) -> maps:remove(hostaddr, Options#{host => Host}).

looked_up(#{hostaddr := _}, _) -> given;
looked_up(Its, Ms) -> epgsql_transport:addresses(Its, Ms).

%% Wherever the name stands.
at_each(Addresses, Name, Port, Hosts) ->
    lists:flatmap(fun
        ({Host, At, Target}) when Host =:= Name, At =:= Port ->
            [{{at, Name, Address}, Port, Target} || Address <- Addresses];
        (Other) -> [Other]
    end, Hosts).

open(Its, Share, Session, #connect{options = Options} = State) ->
    Until = epgsql_transport:deadline(Share),
    case epgsql_transport:connect(Its#{timeout => Share}) of
        {ok, Transport} ->
            Connected = lists:foldl(fun({Attribute, Value}, Acc) ->
                epgsql_session:set_attr(Attribute, Value, Acc)
            end, Session, [{connect_opts, maps:without([password, username], Its)},
                           {transport, Transport}, {async, maps:get(async, Options, undefined)}]),
            _ = epgsql_transport:send(Transport, epgsql_frontend:startup(startup(Options))),
            _ = epgsql_session:activate(Connected),
            {ok, Connected, State#connect{stage = startup, until = Until}};
        {error, Reason} -> unreached(Reason, Session, State)
    end.

unreached(Reason, Session, #connect{hosts = Hosts} = State) ->
    case without_first(Hosts) of
        [] -> {stop, Reason, {error, Reason}, Session};
        More -> execute(Session, State#connect{hosts = More})
    end.

share(infinity, _) -> infinity;
share(Ms, Hosts) -> Ms div Hosts.

%% Who can't be reached isn't asked a second time for less (`prefer-standby').
without_first([{Host, Port, _} | More]) ->
    [Each || {Its, At, _} = Each <- More, {Its, At} =/= {Host, Port}].

%% When the host's share of the time is over that is being asked.
-spec until(#connect{}) -> epgsql_transport:deadline().
until(#connect{until = Until}) -> Until.

%% The host has closed, or its time is over: `none' if it was the last.
-spec left(epgsql_session:session(), #connect{}) ->
          none | {requeue, epgsql_session:session(), #connect{}}.
left(Session, #connect{hosts = Hosts} = State) ->
    case without_first(Hosts) of
        [] -> none;
        More -> elsewhere(Session, More, State)
    end.

startup(#{username := Username} = Options) ->
    [{"user", Username}
     | [{Name, Value} || {Name, Key} <- [{"database", database}, {"replication", replication},
                                         {"application_name", application_name}],
                         Value <- [maps:get(Key, Options, undefined)], Value =/= undefined]]
    ++ maps:get(parameters, Options, []) ++ [{"client_encoding", "UTF8"}].

-spec handle_message(byte(), binary() | epgsql:query_error(), epgsql_session:session(),
                     #connect{}) -> epgsql_command:handle_message_return().
handle_message(Type, Payload, Session, #connect{stage = types} = State) ->
    types(Type, Payload, Session, State);
handle_message(?AUTHENTICATION_REQUEST, Payload, Session, State) ->
    authenticate(epgsql_backend:authentication(Payload), Session, State);
handle_message(?CANCELLATION_KEY, Payload, Session, _) ->
    {noaction, epgsql_session:set_attr(backend, epgsql_backend:key_data(Payload), Session)};
handle_message(?NEGOTIATE_PROTOCOL_VERSION, _, Session, _) ->
    {noaction, Session};
handle_message(?READY_FOR_QUERY, _, Session,
               #connect{stage = ready, hosts = [{_, _, Target} | More]} = State) ->
    case {is_target(Target, Session), More} of
        {true, _} -> ready(Session, State);
        {false, [_ | _]} -> elsewhere(Session, More, State);
        {false, []} -> {stop, normal, {error, {no_such_host, Target}}, Session}
    end;
%% Starting or stopping, or full.
handle_message(?ERROR, #error{code = Code}, Session, #connect{hosts = [_, _ | _] = Hosts} = State)
  when Code =:= <<"57P03">>; Code =:= <<"53300">> ->
    elsewhere(Session, tl(Hosts), State);
handle_message(?ERROR, #error{code = Code} = Error, Session, #connect{stage = Stage, options = Its})
  when Stage =/= ready, Code =:= <<"28000">>; Stage =/= ready, Code =:= <<"28P01">> ->
    {stop, normal, {error, refused(Error, Its)}, Session};
handle_message(?ERROR, Error, Session, _) ->
    {stop, normal, {error, Error}, Session};
handle_message(_, _, _, _) ->
    unknown.

%% An application asks for all of it: only the message tells which line of pg_hba.conf is missing.
refused(Error, #{login_errors := whole}) -> Error;
refused(#error{code = <<"28P01">>}, _) -> invalid_password;
refused(_, _) -> invalid_authorization_specification.

authenticate(ok, Session, #connect{scram = Scram} = State) when Scram =:= undefined;
                                                                 Scram =:= verified ->
    {noaction, Session, State#connect{stage = ready}};
authenticate(ok, Session, _) ->
    %% It has asked for SCRAM and doesn't prove that it knows the password itself.
    {stop, normal, {error, {sasl_server_final, missing}}, Session};
authenticate(cleartext, Session, State) ->
    with_password(fun(Password) -> epgsql_frontend:password(Password) end, Session, State);
authenticate({md5, Salt}, Session, #connect{options = #{username := Username}} = State) ->
    with_password(fun(Password) ->
        Inner = hex(crypto:hash(md5, [Password, epgsql_frontend:text(Username)])),
        epgsql_frontend:password(["md5", hex(crypto:hash(md5, [Inner, Salt]))])
    end, Session, State);
authenticate({sasl, Offered}, Session, State) ->
    Channel = epgsql_transport:channel(epgsql_session:get_attr(transport, Session)),
    case epgsql_scram:mechanism(Offered, Channel) of
        {ok, Mechanism, Binding} ->
            {First, Scram} = epgsql_scram:first(Binding, epgsql_scram:nonce()),
            send(epgsql_frontend:sasl_initial(Mechanism, First), Session,
                 State#connect{scram = Scram});
        none ->
            {stop, normal, {error, {unsupported_auth_method, {sasl, Offered}}}, Session}
    end;
authenticate({sasl_continue, Data}, Session, #connect{scram = Scram} = State)
  when Scram =/= undefined, Scram =/= verified ->
    case password(State) of
        {ok, Password} ->
            case epgsql_scram:final(Data, Password, Scram) of
                {ok, Final, Scram1} ->
                    send(epgsql_frontend:sasl(Final), Session, State#connect{scram = Scram1});
                {error, Reason} -> {stop, normal, {error, {sasl, Reason}}, Session}
            end;
        error -> {stop, normal, {error, password_missing}, Session}
    end;
authenticate({sasl_final, Data}, Session, #connect{scram = Scram} = State)
  when Scram =/= undefined, Scram =/= verified ->
    case epgsql_scram:verify(Data, Scram) of
        ok -> {noaction, Session, State#connect{scram = verified}};
        {error, Reason} -> {stop, normal, {error, {sasl_server_final, Reason}}, Session}
    end;
authenticate({unsupported, Method}, Session, _) ->
    {stop, normal, {error, {unsupported_auth_method, Method}}, Session};
authenticate(_, _, _) ->
    unknown.

%% Nothing of what this host has said is the next one's.
elsewhere(Session, More, State) ->
    ok = epgsql_transport:close(epgsql_session:get_attr(transport, Session)),
    Statements = epgsql_session:get_attr(statements, Session),
    _ = [epgsql_statements:delete(Statements) || Statements =/= none],
    {requeue, epgsql_session:set_attr(transport, undefined, Session),
     State#connect{stage = open, hosts = More, scram = undefined, send = undefined,
                   types = undefined}}.

is_target(any, _) -> true;
is_target(Target, Session) ->
    ReadOnly = epgsql_session:get_parameter(<<"default_transaction_read_only">>, Session),
    case {Target, epgsql_session:get_parameter(<<"in_hot_standby">>, Session)} of
        {primary, <<"off">>} -> true;
        {standby, <<"on">>} -> true;
        {'read-write', <<"off">>} -> ReadOnly =:= <<"off">>;
        {'read-only', Standby} -> Standby =:= <<"on">> orelse ReadOnly =:= <<"on">>;
        _ -> false
    end.

ready(Session, #connect{options = Options} = State) ->
    Codec = epgsql_binary:new_codec(Session, maps:with([nulls], Options)),
    Session1 = epgsql_session:set_attr(statements, statements(Options),
                                       epgsql_session:set_attr(codec, Codec, Session)),
    case codecs(Options) of
        [] -> {finish, connected, connected, Session1};
        Codecs ->
            Types = epgsql_cmd_update_type_cache:init(Codecs),
            {requeue, Session1, State#connect{stage = types, types = Types}}
    end.

statements(#{statement_cache := Max}) when is_integer(Max), Max > 0 -> epgsql_statements:new(Max);
statements(_) -> none.

%% Those that epgsql 4.8 has, if none are given; a replication connection has none.
codecs(#{replication := _}) -> [];
codecs(#{codecs := Codecs}) -> Codecs;
codecs(_) -> [{epgsql_codec_hstore, []}, {epgsql_codec_postgis, []}].

types(Type, Payload, Session, #connect{types = Types, options = Options} = State) ->
    case epgsql_cmd_update_type_cache:handle_message(Type, Payload, Session, Types) of
        {noaction, Session1} -> {noaction, Session1};
        {noaction, Session1, Types1} -> {noaction, Session1, State#connect{types = Types1}};
        {add_result, {error, Error}, _, Session1, _} when is_map_key(codecs, Options) ->
            {stop, normal, {error, Error}, Session1};
        %% A server that only looks like PostgreSQL does without.
        {add_result, _, _, Session1, _} -> {noaction, Session1};
        {finish, _, _, Session1} -> {finish, connected, connected, Session1};
        unknown -> unknown
    end.

with_password(Message, Session, State) ->
    case password(State) of
        {ok, Password} -> send(Message(Password), Session, State);
        error -> {stop, normal, {error, password_missing}, Session}
    end.

password(#connect{options = #{password := Password}}) -> {ok, epgsql_frontend:text(Password())};
password(_) -> error.

send(Message, Session, State) ->
    {requeue, Session, State#connect{stage = authentication, send = Message}}.

hex(Bytes) -> string:lowercase(binary:encode_hex(Bytes)).
