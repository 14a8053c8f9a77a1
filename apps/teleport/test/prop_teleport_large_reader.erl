%% The framing of large elements: whatever the sizes of parts and fragments, and in whatever turns
%% two elements come, each is delivered whole. Where one byte of a header is another, the reader
%% ends as malformed, waits for more, or delivers what it can read.
-module(prop_teleport_large_reader).

-include("teleport_proper.hrl").
-include("teleport.hrl").

-export([prop_any_fragments/0, prop_damaged/0]).

-define(WAIT_MS, 30000).
%% For more that doesn't come.
-define(QUIET_MS, 20).
-define(BYTES_MAX, 1000000).

prop_any_fragments() ->
    ?FORALL({Seed, Count}, {range(1, 1 bsl 58), range(1, 5)},
            begin
                {Messages, Pieces} = made(Seed, Count),
                {Reader, Ref} = reading(Pieces),
                Came = [receive {large, N, Body} -> {N, Body} after ?WAIT_MS -> silent end
                        || _ <- Messages],
                Done = [receive {done, 1, Id} -> Id after ?WAIT_MS -> silent end || _ <- Messages],
                exit(Reader, kill),
                receive {'DOWN', Ref, process, Reader, _} -> ok end,
                lists:sort(Came) =:= Messages
                    andalso lists:sort(Done) =:= lists:seq(1, length(Messages))
            end).

prop_damaged() ->
    ?FORALL({Seed, At, Byte}, {range(1, 1 bsl 58), nat(), range(0, 255)},
            begin
                {_, Pieces} = made(Seed, 3),
                Headers = [N || {N, {header, _}} <- lists:enumerate(Pieces)],
                Which = lists:nth(1 + At rem length(Headers), Headers),
                Damaged = [case {N, Piece} of
                               {Which, {header, Bytes}} -> {header, damage(Bytes, Seed, Byte)};
                               _ -> Piece
                           end || {N, Piece} <- lists:enumerate(Pieces)],
                {Reader, Ref} = reading(Damaged),
                Reason = receive {'DOWN', Ref, process, Reader, Why} -> Why
                         after ?QUIET_MS -> waits
                         end,
                exit(Reader, kill),
                receive {'DOWN', Ref, process, Reader, _} -> ok after 0 -> ok end,
                ok = forget(),
                lists:member(Reason, [malformed, waits, {read, closed}])
            end).

damage(Bytes, Seed, Byte) ->
    Place = Seed rem byte_size(Bytes),
    <<Before:Place/binary, _, After/binary>> = Bytes,
    <<Before/binary, Byte, After/binary>>.

forget() -> receive {_, _, _} -> forget() after 0 -> ok end.

%% Messages, and what is written for them: at most two at a time, each in fragments of any size.
made(Seed, Count) ->
    _ = rand:seed(exsss, Seed),
    Messages = [{N, [rand:bytes(32000 + rand:uniform(20000)) || _ <- lists:seq(2, rand:uniform(4))]
                    ++ [binary:copy(<<N>>, rand:uniform(5000))]} || N <- lists:seq(1, Count)],
    {Messages, turns([], [begin
                              {Rest, Cut} = teleport_large:encode([self() | {large, N, Body}]),
                              {N, iolist_to_binary(Rest), Cut}
                          end || {N, Body} <- Messages])}.

turns([], []) ->
    [];
turns(Partial, [{N, Rest, Cut} | Later]) when Partial =:= []; length(Partial) < 2 ->
    Sizes = << <<(byte_size(Bin)):64>> || Bin <- Cut >>,
    [{header, <<1, N:64, 0:64, (byte_size(Rest)):64, (length(Cut)):16, Sizes/binary>>}
     | turns([{N, iolist_to_binary([Rest | Cut])} | Partial], Later)];
turns(Partial, Later) ->
    {N, Bytes} = lists:nth(rand:uniform(length(Partial)), Partial),
    Size = min(byte_size(Bytes), rand:uniform(30000)),
    <<Now:Size/binary, Left/binary>> = Bytes,
    Others = lists:keydelete(N, 1, Partial),
    Next = case Left of <<>> -> Others; _ -> [{N, Left} | Others] end,
    [{header, <<2, N:64, Size:64>>}, {bytes, Now} | turns(Next, Later)].

%% A reader on a real connection, whose peer writes all of this.
reading(Pieces) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, Port} = inet:port(Listen),
    {ok, Ours} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Theirs} = gen_tcp:accept(Listen),
    ok = gen_tcp:close(Listen),
    Reader = teleport_large_reader:start_link(
        #{node => node(), number => 1, seen => atomics:new(1, []), watch => self(),
          stats => atomics:new(?STATS, []), bytes_max => ?BYTES_MAX, receivers => all}),
    true = unlink(Reader),
    Ref = erlang:monitor(process, Reader),
    ok = gen_tcp:controlling_process(Theirs, Reader),
    ok = teleport_reader:go(Reader, {tcp, Theirs}),
    %% A reader that has ended doesn't take the rest.
    _ = gen_tcp:send(Ours, [Bytes || {_, Bytes} <- Pieces]),
    {Reader, Ref}.
