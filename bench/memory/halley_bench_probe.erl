%% The parts of the brain's memory, read from outside: a module that the benchmark adds to a real
%% release by the emulator's flags (`-pa DIRECTORY -run halley_bench_probe start SOCKET`).
%%
%% It listens on a Unix socket and answers one line of JSON for each line:
%%   report        the emulator's own figures by kind, the tables, the carriers, the largest
%%                 processes, and what Halley's binaries add up to
%%   link PATH     the brain dials another worker, besides those of its edge; {"linked": true}
%%   online        how many users and sessions are in the directory
%%
%% It is a tool of the benchmark: no part of a release has it, and it is open to whoever may connect
%% to its socket.
-module(halley_bench_probe).

-export([start/1]).

-define(LINE_BYTES_MAX, 4096).
-define(PROCESSES, 12).
-define(ALLOCATORS, [binary_alloc, ets_alloc, eheap_alloc, ll_alloc, driver_alloc, std_alloc,
                     sl_alloc, temp_alloc, fix_alloc, literal_alloc]).

%% Called by `-run` with the socket's path.
-spec start([string()]) -> pid().
start([Path]) ->
    spawn(fun() -> listen(Path) end).

listen(Path) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {ifaddr, {local, Path}}, {active, false},
                                      {packet, line}, {recbuf, ?LINE_BYTES_MAX}]),
    accept(Listen).

accept(Listen) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    serve(Socket),
    accept(Listen).

serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Line} ->
            Answer = answer(binary:split(string:trim(Line), <<" ">>)),
            ok = gen_tcp:send(Socket, [jiffy:encode(Answer), $\n]),
            %% What an answer leaves behind is not to be in the next one.
            true = garbage_collect(),
            serve(Socket);
        {error, _} ->
            gen_tcp:close(Socket)
    end.

answer([<<"report">>]) ->
    #{memory => maps:from_list(erlang:memory()), tables => tables(), carriers => carriers(),
      processes => largest_processes(), persistent_terms => persistent_term:info(),
      pages => maps:from_list([{Table, pages(Table)} || Table <- [halley_id_pages,
                                                                  halley_followers,
                                                                  halley_following]]),
      users => halley_ids:count(), follows => halley_follows:count(),
      online => halley_directory:online()};
answer([<<"online">>]) ->
    halley_directory:online();
answer([<<"link">>, Path]) ->
    {ok, _} = halley_edge_link_sup:start_link_process(Path),
    #{linked => true};
answer(_) ->
    #{error => <<"expected report, online or link PATH">>}.

%% Bytes of each table, the largest first; of binaries above 64 bytes they hold references only.
tables() ->
    Word = erlang:system_info(wordsize),
    Rows = [{ets:info(Table, memory) * Word, ets:info(Table, name), ets:info(Table, size)}
            || Table <- ets:all(), is_integer(ets:info(Table, memory))],
    [#{name => Name, bytes => Bytes, rows => Size}
     || {Bytes, Name, Size} <- lists:sublist(lists:reverse(lists:sort(Rows)), ?PROCESSES)].

%% What each allocator took from the system (carriers) and what is in use of it (blocks).
carriers() ->
    maps:from_list([{Allocator, carriers(erlang:system_info({allocator, Allocator}))}
                    || Allocator <- ?ALLOCATORS]).

carriers(Instances) when is_list(Instances) ->
    Sums = [sum(Kind, Values) || {instance, _, Kinds} <- Instances,
                                 {Kind, Values} <- Kinds,
                                 lists:member(Kind, [mbcs, sbcs, mbcs_pool])],
    #{carriers => lists:sum([C || {C, _} <- Sums]), blocks => lists:sum([B || {_, B} <- Sums])};
carriers(_) ->
    #{carriers => 0, blocks => 0}.

sum(_, Values) ->
    Carriers = element(2, lists:keyfind(carriers_size, 1, Values)),
    {Carriers, blocks(Values)}.

%% {blocks, [{Type, [{size, Now, ...}, ...]}]}, or of the pool {size, Now}.
blocks(Values) ->
    case lists:keyfind(blocks, 1, Values) of
        {blocks, Types} ->
            lists:sum([element(2, lists:keyfind(size, 1, Sizes)) || {_, Sizes} <- Types]);
        false ->
            0
    end.

largest_processes() ->
    Rows = [{Bytes, Pid} || Pid <- processes(),
                            {memory, Bytes} <- [process_info(Pid, memory)]],
    [#{name => name(Pid), bytes => Bytes}
     || {Bytes, Pid} <- lists:sublist(lists:reverse(lists:sort(Rows)), ?PROCESSES)].

name(Pid) ->
    case process_info(Pid, [registered_name, dictionary, initial_call]) of
        [{registered_name, Name} | _] when is_atom(Name) -> Name;
        [_, {dictionary, Dictionary}, {_, Call}] ->
            {M, F, A} = proplists:get_value('$initial_call', Dictionary, Call),
            iolist_to_binary(io_lib:format("~p:~p/~p", [M, F, A]));
        undefined -> gone
    end.

pages(Table) ->
    ets:foldl(fun({_, Page}, #{rows := Rows, bytes := Bytes, referenced := Referenced}) ->
                      #{rows => Rows + 1, bytes => Bytes + byte_size(Page),
                        referenced => Referenced + binary:referenced_byte_size(Page)}
              end, #{rows => 0, bytes => 0, referenced => 0}, Table).
