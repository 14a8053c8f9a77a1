#!/usr/bin/env escript
%% -*- erlang -*-
%% The medians of what `run' has measured, as a table, with the least and the most of the rounds.
-mode(compile).

main([File]) ->
    {ok, Figures} = file:consult(File),
    Of = fun(Driver, Figure) ->
        case lists:sort([Value || {D, F, Value} <- Figures, D =:= Driver, F =:= Figure]) of
            [] -> none;
            Values -> {lists:nth(length(Values) div 2 + 1, Values), hd(Values), lists:last(Values)}
        end
    end,
    io:format("| a second | apps/epgsql | epgsql 4.8 | p1_pgsql | to epgsql | to p1_pgsql |~n"
              "| --- | ---: | ---: | ---: | ---: | ---: |~n"),
    [begin
         [Ours, Theirs, P1] = [Of(Driver, Figure) || Driver <- [apps_epgsql, epgsql, p1_pgsql]],
         io:format("| ~ts | ~ts | ~ts | ~ts | ~ts | ~ts |~n",
                   [Name, spread(Ours), spread(Theirs), spread(P1), ratio(Ours, Theirs),
                    ratio(Ours, P1)])
     end || {Figure, Name} <- [{{queries, 1}, "queries, 1 caller"},
                               {{queries, 16}, "queries, 16 callers"},
                               {{queries, 64}, "queries, 64 callers"},
                               {{client_ns, 1}, "ns of processor a query, client, 1 caller"},
                               {{client_ns, 16}, "client, 16 callers"},
                               {{client_ns, 64}, "client, 64 callers"},
                               {{server_ns, 1}, "server, 1 caller"},
                               {{server_ns, 16}, "server, 16 callers"},
                               {{server_ns, 64}, "server, 64 callers"},
                               {{p50_us, 64}, "us until a caller of 64 has its answer, p50"},
                               {{p99_us, 64}, "p99"},
                               {select, "rows of a select of 1,000,000"},
                               {copy, "rows as a stream"}]].

spread(none) -> "-";
spread({Value, Value, Value}) -> number(Value);
spread({Median, Least, Most}) -> [number(Median), " (", number(Least), "-", number(Most), ")"].

number(Value) -> grouped(lists:reverse(integer_to_list(Value)), []).

grouped([A, B, C, D | Rest], Acc) -> grouped([D | Rest], [$,, C, B, A | Acc]);
grouped(Rest, Acc) -> lists:reverse(Rest) ++ Acc.

ratio(_, none) -> "-";
ratio({Ours, _, _}, {Theirs, _, _}) -> io_lib:format("~.2f", [Ours / Theirs]).
