%% Calls the engine for the core, by one of its two handles. The process opens its handle with the
%% first request, and ends with the handle. Results go to the process that started it.
%%
%% A caller that is no longer wanted isn't killed: an append that was sent may not be cut off
%% (`halley_log_engine'). It finishes its call, and its result finds no reference.
-module(halley_cluster_caller).

-export([start_link/1, call/3, close/1]).

-type engine() :: {module(), halley_log_engine:settings()}.

-spec start_link(engine()) -> pid().
start_link(Engine) ->
    Owner = self(),
    spawn_link(fun() -> closed(Owner, Engine) end).

%% The owner gets `{result, Ref, Result}'.
-spec call(pid(), halley_cluster_handle:ref(),
           halley_cluster_handle:request() | {brains, halley_log_engine:brain()}) -> ok.
call(Caller, Ref, Request) ->
    Caller ! {call, Ref, Request},
    ok.

%% After the call that goes on.
-spec close(pid()) -> ok.
close(Caller) ->
    Caller ! close,
    ok.

closed(Owner, {Module, Settings} = Engine) ->
    receive
        {call, Ref, open} ->
            Result = Module:open(Settings),
            Owner ! {result, Ref, Result},
            case Result of
                {ok, Handle, _} -> open(Owner, Module, Handle);
                {error, _} -> closed(Owner, Engine)
            end;
        close ->
            ok
    end.

open(Owner, Module, Handle) ->
    receive
        {call, Ref, Request} ->
            Owner ! {result, Ref, request(Request, Owner, Module, Handle)},
            open(Owner, Module, Handle);
        close ->
            Module:close(Handle)
    end.

request({append, Prev, Token, Group}, _, Module, Handle) ->
    Module:append(Prev, Token, Group, Handle);
request({read, After, BytesMax}, _, Module, Handle) ->
    Module:read(After, BytesMax, Handle);
request(snapshot, Owner, Module, Handle) ->
    Module:snapshot(fun(Rows) -> Owner ! {snapshot, Rows}, ok end, Handle);
request({take, Role, Brain, Term, TtlMs}, _, Module, Handle) ->
    Module:take(Role, Brain, Term, TtlMs, Handle);
request({brains, Brain}, _, Module, Handle) ->
    Module:brains(Brain, Handle);
request({trim, OlderThan}, _, Module, Handle) ->
    Module:trim(OlderThan, Handle).
