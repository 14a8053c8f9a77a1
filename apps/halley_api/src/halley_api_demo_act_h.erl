%% The acts of the demo page that no user may do: it kills the brain, and it makes a celebrity.
%%
%%   POST /demo/acts/kill-brain         202, then the brain dies by SIGKILL and is started again
%%   POST /demo/acts/celebrity?user=U   ten thousand users follow U: `fan-1' to `fan-10000'
%%
%% Invariants:
%% - Whoever can reach this could as well run a command on this machine: it is there in auth.mode
%%   none only, where the public listener is on loopback.
%% - Only the demo page asks: same origin, a host that is loopback by its name, which no page from
%%   elsewhere has (a name that was bound anew to 127.0.0.1 has another), and a header that no form
%%   and no foreign page can send.
%% - The brain kills itself only where `./halley foreground' is its parent: that starts it again.
-module(halley_api_demo_act_h).
-behaviour(halley_api).

-export([handle/3, may_act/0, refusal/1]).

-include_lib("kernel/include/logger.hrl").

-define(FANS, 10000).
%% The answer is written by then.
-define(KILL_AFTER_MS, 250).

-type facts() :: #{auth_mode := none | jwt, listen := binary(), headers := #{binary() => binary()}}.

-spec handle(post, [binary()], halley_api:request()) -> halley_api:response().
handle(post, [Act], #{headers := Headers} = Request) ->
    {_, Listen} = halley_api_config:listen(public),
    Facts = #{auth_mode => halley_api_config:auth_mode(), listen => Listen, headers => Headers},
    case refusal(Facts) of
        none -> act(Act, Request);
        Error -> halley_api_error:response(Error)
    end.

%% Is there a launcher that starts a killed brain again?
-spec may_act() -> boolean().
may_act() ->
    halley_launcher:pid() =/= none.

%% Why nothing is done, by what is known of the request.
-spec refusal(facts()) -> none | halley_api_error:error().
refusal(#{auth_mode := none, listen := Listen, headers := Headers}) ->
    Header = fun(Name) -> maps:get(Name, Headers, <<>>) end,
    Host = Header(<<"host">>),
    IsLoopback = halley_config_check:is_loopback(binary_to_list(Listen)) andalso is_local(Host),
    IsOwn = lists:member(Header(<<"origin">>), [<<"http://", Host/binary>>,
                                                <<"https://", Host/binary>>]),
    HasMark = Header(<<"x-halley-demo">>) =:= <<"act">>,
    if
        not IsLoopback -> forbidden("this is for a browser on this machine, at localhost");
        not IsOwn; not HasMark -> forbidden("only the demo page may do this");
        true -> none
    end;
refusal(#{}) ->
    {404, <<"not_found">>, "the demo is there in auth.mode = none only"}.

forbidden(Message) -> {403, <<"demo_only">>, Message}.

is_local(Host) ->
    lists:member(without_port(Host), [<<"localhost">>, <<"127.0.0.1">>, <<"[::1]">>]).

without_port(Host) ->
    re:replace(Host, ":[0-9]+$", "", [{return, binary}]).

act(<<"kill-brain">>, _) ->
    case halley_launcher:pid() of
        none ->
            Message = "nobody would start this brain again: ./halley foreground has not started it",
            halley_api_error:response({409, <<"no_launcher">>, Message});
        Launcher ->
            spawn(fun() -> timer:sleep(?KILL_AFTER_MS), die(Launcher) end),
            Killed = {[{<<"killed">>, list_to_binary(os:getpid())}]},
            halley_api_reply:json(202, [jiffy:encode(Killed), $\n])
    end;
act(<<"celebrity">>, #{query := Query}) ->
    case halley_api_id:check(proplists:get_value(<<"user">>, Query, <<>>), <<"user">>) of
        {ok, User} -> celebrity(User);
        {error, Error} -> halley_api_error:response(Error)
    end;
act(_, _) ->
    halley_api_error:response({404, <<"not_found">>, "the demo has no such act"}).

celebrity(User) ->
    Fans = [<<"fan-", (integer_to_binary(N))/binary>> || N <- lists:seq(1, ?FANS)],
    Started = erlang:monotonic_time(millisecond),
    case halley_follows:follow([{Fan, User} || Fan <- Fans]) of
        {ok, _} ->
            Ms = erlang:monotonic_time(millisecond) - Started,
            halley_api_reply:json({[{<<"followers">>, halley_follows:count_followers(User)},
                                    {<<"ms">>, Ms}]});
        {error, Reason} ->
            halley_api_error:response(halley_api_error:reason(Reason))
    end.

%% The launcher is told first: it starts the brain again only if it was.
-spec die(pos_integer()) -> term().
die(Launcher) ->
    ?LOG_WARNING("the demo page kills the brain"),
    os:cmd(["kill -USR1 ", integer_to_list(Launcher), " && kill -KILL ", os:getpid()]).
