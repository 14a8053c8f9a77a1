%% Callers that wait until a change that they have written comes back through the stream.
%%
%% The change's transaction has a message with a token. The stream's process shows each such message
%% when everything of its transaction is in effect, and the one that the token belongs to hears of
%% it. A token can't be guessed, and other Halleys' tokens mean nothing here.
%%
%% Also here: what is written to, as long as the stream runs. Without it nothing is written, as
%% nothing would come back.
-module(halley_postgres_waiting).

-export([new/0, ready/1, unready/0, target/0, enter/1, leave/1, seen/1, sweep/0]).
-export_type([target/0, place/0]).

%% `others': tables whose rows make follows as well. `worker': the stream's process.
-type target() :: #{table := halley_postgres_config:table(), types := {binary(), binary()},
                    others := [halley_postgres_sql:typed()], worker := pid()}.
-type place() :: {Token :: binary(), reference()}.

-define(TOKEN_BYTES, 12).

%% Of the caller, and gone with it.
-spec new() -> ok.
new() ->
    _ = ets:new(?MODULE, [named_table, public, {read_concurrency, true},
                          {write_concurrency, true}]),
    true = ets:insert(?MODULE, {mark, binary:encode_hex(crypto:strong_rand_bytes(?TOKEN_BYTES))}),
    ok.

-spec ready(target()) -> ok.
ready(Target) ->
    true = ets:insert(?MODULE, {target, Target}),
    ok.

-spec unready() -> ok.
unready() ->
    true = ets:delete(?MODULE, target),
    ok.

-spec target() -> {ok, target()} | none.
target() ->
    try ets:lookup(?MODULE, target) of
        [{_, Target}] -> {ok, Target};
        [] -> none
    catch
        error:badarg -> none
    end.

%% The caller gets `{Reference, Said}' when its token has come, with what stands behind it. Who has
%% entered must leave; of those who were killed nothing is left some time after `UntilMs'.
-spec enter(UntilMs :: integer()) -> {ok, place()} | full.
enter(UntilMs) ->
    case ets:info(?MODULE, size) > halley_limits:get(postgres_writes_max) of
        true -> full;
        false ->
            [{_, Mark}] = ets:lookup(?MODULE, mark),
            Number = integer_to_binary(erlang:unique_integer([positive])),
            Token = <<Mark/binary, $-, Number/binary>>,
            Reference = alias(),
            true = ets:insert(?MODULE, {Token, Reference, UntilMs}),
            {ok, {Token, Reference}}
    end.

-spec leave(place()) -> ok.
leave({Token, Reference}) ->
    _ = ets:info(?MODULE, size) =/= undefined andalso ets:delete(?MODULE, Token),
    _ = unalias(Reference),
    receive {Reference, _} -> ok after 0 -> ok end.

%% A message's content: a token, a blank, and what was said with it. Anybody may have written it.
-spec seen(binary()) -> ok.
seen(Content) ->
    case binary:split(Content, <<" ">>) of
        [Token, Said] ->
            case ets:take(?MODULE, Token) of
                [{_, Reference, _}] -> Reference ! {Reference, Said}, ok;
                [] -> ok
            end;
        _ -> ok
    end.

-spec sweep() -> ok.
sweep() ->
    NowMs = erlang:monotonic_time(millisecond),
    _ = ets:select_delete(?MODULE, [{{'_', '_', '$1'}, [{'<', '$1', NowMs}], [true]}]),
    ok.
