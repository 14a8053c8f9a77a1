%% Answers orders, each once, whatever breaks: the connection, Halley, this process or its node.
%%
%% It is a session of the user `desk', who follows `orders'. An order is an event about that subject
%% with the customer in its data; the answer is a private event for the customer. Two things make
%% it exactly one answer: the cursor is kept in a file when the answer is on Halley's disk, so an
%% order that was in work comes again; and the answer's id is made of the order's, so it is
%% published once.
-module(desk_clerk).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2]).

-define(AGAIN_MS, 200).

-record(state, {file :: file:filename()}).

-spec start_link() -> gen_server:start_ret().
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, #state{}, {continue, login}}.
init([]) ->
    File = filename:join(os:getenv("DESK_DIR", "."), "desk.cursor"),
    {ok, #state{file = File}, {continue, login}}.

-spec handle_continue(login, #state{}) -> {noreply, #state{}}.
handle_continue(login, #state{file = File} = State) ->
    Options = case file:read_file(File) of
        {ok, Cursor} -> #{cursor => Cursor};
        {error, enoent} -> #{}
    end,
    ok = until(fun() -> halley_remote:follow(<<"desk">>, <<"orders">>) end),
    {ok, Session} = until(fun() -> halley_remote:login(<<"desk">>, Options) end),
    %% Where it begins: an order that breaks the node before it is answered comes again.
    ok = keep(halley_remote:began(Session), State),
    io:format("desk: open, process ~s~n", [os:getpid()]),
    {noreply, State}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _, State) -> {reply, unknown, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({halley, #{subject := <<"orders">>, cursor := Cursor} = Order}, State) ->
    ok = answer(Order),
    ok = keep(Cursor, State),
    {noreply, State};
handle_info({halley, #{cursor := Cursor}}, State) ->
    ok = keep(Cursor, State),
    {noreply, State};
handle_info({halley_gap, _, #{reason := Reason, cursor := Cursor}}, State) ->
    io:format("desk: orders may be missing: ~s~n", [Reason]),
    ok = keep(Cursor, State),
    {noreply, State};
handle_info({halley_closed, _}, State) ->
    {stop, closed, State};
%% Started again, it logs in with what it has kept.
handle_info({halley_broken, _, _}, State) ->
    {stop, broken, State};
handle_info(_, State) ->
    {noreply, State}.

answer(#{id := Id, data := #{<<"customer">> := Customer} = Data}) when is_binary(Customer) ->
    Answer = #{order => Id, text => <<"on its way: ", (text(Data))/binary>>},
    Opts = #{id => <<"answer-", Id/binary>>},
    {ok, _} = until(fun() -> halley_remote:publish({to, [Customer]}, Answer, Opts) end),
    io:format("desk: answered ~ts~n", [Id]);
answer(#{id := Id}) ->
    io:format("desk: ~ts has no customer~n", [Id]).

text(#{<<"product">> := Product}) when is_binary(Product) -> Product;
text(_) -> <<"something">>.

%% As long as Halley can't be reached. Anything else is a mistake, and says so.
until(Ask) ->
    case Ask() of
        {error, Problem} when Problem =:= unavailable; Problem =:= overloaded ->
            timer:sleep(?AGAIN_MS),
            until(Ask);
        Answer ->
            Answer
    end.

%% Whole or not at all.
keep(Cursor, #state{file = File}) ->
    ok = file:write_file(File ++ ".new", Cursor),
    file:rename(File ++ ".new", File).
