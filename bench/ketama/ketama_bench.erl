%% Shared by both parts of bench/ketama/run: the head of a result, lists of servers, ways to run.
-module(ketama_bench).

-export([head/2, servers/1, weights/2, write/2, rounds/2, median/1, spread/1]).

%% A title, what was run, of which commit, where.
-spec head(Title :: string(), Command :: string()) -> ok.
head(Title, Command) ->
    Changes = case line("git status --porcelain -uno -- :/ ':(exclude,top)bench/results'") of
                  "" -> "";
                  _ -> " with changes"
              end,
    io:format("# ~ts~n~nMade by `~ts`, commit ~ts~ts, ~ts~n",
              [Title, Command, line("git rev-parse --short HEAD"), Changes, line("date +%F")]),
    io:format("~ts cores (~ts), ~ts GB; OTP ~ts, erts ~ts~n~n",
              [line("nproc"), line("sed -n 's/^model name.*: //p' /proc/cpuinfo"),
               line("awk '/MemTotal/ { printf \"%.0f\", $2 / 1048576 }' /proc/meminfo"),
               erlang:system_info(otp_release), erlang:system_info(version)]).

line(Command) ->
    hd(string:split(os:cmd(Command ++ " 2>/dev/null"), "\n")).

%% Of one weight each.
-spec servers(pos_integer()) -> [{binary(), pos_integer()}].
servers(Count) ->
    [{iolist_to_binary(io_lib:format("10.0.~b.~b:11211", [I bsr 8, I band 255])), 100}
     || I <- lists:seq(1, Count)].

%% The same servers with random weights.
-spec weights([{binary(), pos_integer()}], Most :: pos_integer()) -> [{binary(), pos_integer()}].
weights(Servers, Most) ->
    [{Name, rand:uniform(Most)} || {Name, _} <- Servers].

%% As a `ketama.servers' file.
-spec write(file:filename(), [{binary(), pos_integer()}]) -> ok.
write(File, Servers) ->
    ok = file:write_file(File, [[Name, $\t, integer_to_binary(Weight), $\n]
                                || {Name, Weight} <- Servers]).

%% What is compared takes turns: the results of each fun, one of each round.
-spec rounds(pos_integer(), [{Name, fun(() -> number())}]) -> [{Name, [number()]}].
rounds(Rounds, Funs) ->
    Results = [[{Name, Fun()} || {Name, Fun} <- Funs] || _ <- lists:seq(1, Rounds)],
    [{Name, [proplists:get_value(Name, Round) || Round <- Results]} || {Name, _} <- Funs].

-spec median([number()]) -> number().
median(Values) -> lists:nth(length(Values) div 2 + 1, lists:sort(Values)).

-spec spread([number()]) -> {number(), number()}.
spread(Values) -> {lists:min(Values), lists:max(Values)}.
