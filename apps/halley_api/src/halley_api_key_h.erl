%% GET /v1/key : what the server key that was sent may do. Any key may ask.
%%
%% The console shows by it what its key allows. `open': no key is needed here, all is allowed.
-module(halley_api_key_h).
-behaviour(halley_api).

-export([handle/3]).

-spec handle(get, [], halley_api:request()) -> halley_api:response().
handle(get, [], #{headers := Headers}) ->
    case halley_server_keys:check(maps:get(<<"authorization">>, Headers, undefined)) of
        open -> key(true, halley_server_key:scopes());
        {ok, Scopes} -> key(false, Scopes);
        %% It was good when the request was judged.
        _ -> key(false, [])
    end.

key(IsOpen, Scopes) ->
    halley_api_reply:json({[{<<"open">>, IsOpen},
                            {<<"scopes">>, [atom_to_binary(Scope) || Scope <- Scopes]}]}).
