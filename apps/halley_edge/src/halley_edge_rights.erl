%% Subscriptions of a session that end while it lives (protocol/link.md 18).
%%
%% RIGHTS says what the session may do from now on. The handler (`halley_edge', `handler') judges by
%% its optional `lost/3' which of the session's subscriptions these rights don't allow. They end
%% (`halley_subscriptions_end'), and ENDED names them, as the answer: it names none if none has
%% ended, so that the worker knows that it needn't say its RIGHTS again.
%%
%% A session with `presence=*' may see others from then on: the handler's optional `view/1' returns
%% whom.
%%
%% A server ends some as well. An edge of an earlier build doesn't know ENDED: it gets the request
%% to close the session.
-module(halley_edge_rights).

-export([changed/4, ended/4, is_known/1, keeps_views/1]).

%% What an edge counts that knows ENDED.
-define(KNOWN_BY, <<"halley_edge_subscriptions_ended_total">>).
-define(VIEWS_KNOWN_BY, <<"halley_edge_presence_narrowed_total">>).
%% In one frame.
-define(SUBJECTS_MAX, 500).
%% What stands for all whom a user follows (15.2).
-define(EVERYBODY, <<1, $*>>).
-define(RIGHT_MISSING, <<"right_missing">>).
-define(BY_SERVER, <<"ended_by_server">>).

%% RIGHTS came. A session that isn't there has nothing.
-spec changed(halley_edge_codec:conn(), Rights :: binary(), KeepsViews :: boolean(),
              {halley_links:slot(), halley_edge_sender:handle()}) -> ok.
changed(Conn, Rights, KeepsViews, {Slot, Writer}) ->
    Ended = case halley_subscriptions_end:said(Slot, Conn) of
        none -> [];
        {User, Said} ->
            Lost = lost(Rights, name(User), Said),
            Narrowed = view(User, {Slot, Conn}, Rights, Said -- Lost, KeepsViews),
            drop(User, Slot, Conn, Narrowed ++ Lost)
    end,
    send(Conn, ?RIGHT_MISSING, Ended, Writer).

drop(User, Slot, Conn, Lost) ->
    case halley_subscriptions_end:drop(User, [{Slot, Conn}], Lost) of
        [{_, _, Ended}] -> Ended;
        [] -> []
    end.

name(nobody) -> <<>>;
name(Number) -> halley_ids:name(Number).

%% Nobody judges before the API runs: then nothing is granted either.
lost(Rights, User, Said) ->
    case handler(lost, 3) of
        none -> [];
        Handler -> Handler:lost(Rights, User, Said)
    end.

handler(Function, Arity) ->
    case application:get_env(halley_edge, handler) of
        {ok, Handler} ->
            case erlang:function_exported(Handler, Function, Arity) of
                true -> Handler;
                false -> none
            end;
        undefined ->
            none
    end.

%% A worker of a build before would say to the next brain that the session may see everybody.
view(User, Session, Rights, Left, KeepsViews) ->
    Handler = handler(view, 1),
    case lists:member(?EVERYBODY, Left) andalso Handler =/= none andalso Handler:view(Rights) of
        false ->
            [];
        View when KeepsViews; View =:= everybody ->
            ok = halley_subscriptions_end:view(User, Session, View),
            [];
        _ ->
            [?EVERYBODY]
    end.

%% A server has ended these.
-spec ended(halley_edge_codec:conn(), [binary()], Edge :: known | unknown,
            {halley_links:slot(), halley_edge_sender:handle()}) -> ok.
ended(Conn, Subjects, known, {_, Writer}) ->
    send(Conn, ?BY_SERVER, Subjects, Writer);
ended(Conn, _, unknown, {Slot, _}) ->
    halley_links_queue:close_sessions(Slot, [Conn],
                                      <<"ended_by_server: a subscription has ended">>).

%% Whether an edge with this hello keeps whom its sessions may see.
-spec keeps_views(map()) -> boolean().
keeps_views(#{metrics := Metrics}) ->
    lists:keymember(?VIEWS_KNOWN_BY, 1, Metrics).

%% Whether an edge with this hello knows ENDED.
-spec is_known(map()) -> known | unknown.
is_known(#{metrics := Metrics}) ->
    case lists:keymember(?KNOWN_BY, 1, Metrics) of
        true -> known;
        false -> unknown
    end.

send(Conn, Reason, Subjects, Writer) ->
    {Now, Later} = lists:split(min(?SUBJECTS_MAX, length(Subjects)), Subjects),
    Frame = halley_edge_codec:encode({ended, Conn, Reason, Now}),
    ok = halley_edge_sender:send(Writer, [iolist_to_binary(Frame)]),
    Later =:= [] orelse send(Conn, Reason, Later, Writer),
    ok.
