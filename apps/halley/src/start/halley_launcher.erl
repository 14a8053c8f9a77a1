%% What started this brain and waits for its end: `./halley foreground' (tools/halley.in).
-module(halley_launcher).

-export([pid/0, closed/0]).

%% Its process id, where it is still this brain's parent.
-spec pid() -> pos_integer() | none.
pid() ->
    case {application:get_env(halley, launcher), file:read_file("/proc/self/stat")} of
        {{ok, Pid}, {ok, Stat}} when is_integer(Pid) ->
            case re:run(Stat, ".*\\) \\S (\\d+) ", [{capture, all_but_first, list}]) of
                {match, [Parent]} -> case list_to_integer(Parent) of Pid -> Pid; _ -> none end;
                nomatch -> none
            end;
        _ -> none
    end.

%% Says that the brain has stopped as it was asked to. The emulator ends when its log is written,
%% which it never is where nobody reads it: the launcher gives it some seconds for that.
-spec closed() -> ok.
closed() ->
    case pid() of
        none -> ok;
        Pid ->
            %% Without a descriptor nothing can be told.
            _ = try os:cmd(["kill -USR2 ", integer_to_list(Pid)]) catch error:_ -> ok end,
            ok
    end.
