%% Whether a user number may leave, as far as sessions go (`halley_ids').
%%
%% A number is in use by the sessions in the directory, and by those that its links *hold*: they
%% aren't open yet, because missed events come first. These are rows {{user number, slot}, count} of
%% an ordered ETS table that the links write, and `forget/1' deletes those of a link that ended. A
%% process that holds a session checks afterwards whether the slot is shut, and releases it again
%% then: as with words of the directory, a link that reads on after its purge leaves nothing.
%%
%% A number that leaves has a word of its own in the directory, put by one compare-and-exchange
%% where 0 stood: from then on no session opens for it. A process that wants to open one must have
%% the number kept first.
-module(halley_directory_leaving).

-export([new/0, hold/2, release/2, is_held/1, held/1, is_any_held/0, forget/1]).
-export([came/1, left/1, leave/1, is_leaving/1, stay/1, each/1, there/1]).

-include("halley_directory.hrl").

-define(HELD, halley_directory_held).

-type user_number() :: halley_id:user_number().

%% Makes the table. The caller, a supervisor, owns it.
-spec new() -> ok.
new() ->
    ?HELD = ets:new(?HELD, [ordered_set, named_table, public, {write_concurrency, true}]),
    ok.

%% A link has a session of the user that isn't open yet.
-spec hold(user_number(), halley_directory:slot()) -> ok.
hold(User, Slot) ->
    Key = {User, Slot},
    _ = ets:update_counter(?HELD, Key, 1, {Key, 0}),
    case halley_directory_slots:is_shut(Slot) of
        true -> release(User, Slot);
        false -> ok
    end.

%% And has it no longer.
-spec release(user_number(), halley_directory:slot()) -> ok.
release(User, Slot) ->
    Key = {User, Slot},
    _ = ets:update_counter(?HELD, Key, -1, {Key, 1}) > 0 orelse ets:delete(?HELD, Key),
    left(User).

%% A first session is open. A user that has one held was there before.
-spec came(user_number()) -> ok.
came(User) ->
    case halley_hooked:is_on(moves) andalso not is_held(User) of
        true -> halley_hooked_moves:came(User);
        false -> ok
    end.

%% A session has ended, open or held: hooks are told when that was if it was the last.
-spec left(user_number()) -> ok.
left(User) ->
    IsGone = halley_hooked:is_on(moves)
        andalso halley_directory_atomics:get(halley_directory_atomics:chunks(), User) =:= 0
        andalso not is_held(User),
    case IsGone of
        true -> halley_hooked_moves:left(User);
        false -> ok
    end.

-spec is_held(user_number()) -> boolean().
is_held(User) ->
    case ets:next(?HELD, {User, 0}) of
        {User, _} -> true;
        _ -> false
    end.

%% Which links hold sessions of the user, and how many.
-spec held(user_number()) -> [{halley_directory:slot(), pos_integer()}].
held(User) ->
    ets:select(?HELD, [{{{User, '$1'}, '$2'}, [{'>', '$2', 0}], [{{'$1', '$2'}}]}]).

%% Whether any session is on its way in.
-spec is_any_held() -> boolean().
is_any_held() ->
    ets:first(?HELD) =/= '$end_of_table'.

%% A link ended: it holds nothing.
-spec forget(halley_directory:slot()) -> ok.
forget(Slot) ->
    Users = case halley_hooked:is_on(moves) of
        true -> ets:select(?HELD, [{{{'$1', Slot}, '_'}, [], ['$1']}]);
        false -> []
    end,
    true = ets:match_delete(?HELD, {{'_', Slot}, '_'}),
    lists:foreach(fun left/1, Users).

%% Calls the function for each user that has a session, open or held, once or more. Whoever comes
%% or goes meanwhile may be among them.
-spec there(fun((user_number()) -> ok)) -> ok.
there(Fun) ->
    ok = halley_directory_atomics:foreach(fun(_, ?LEAVING) -> ok;
                                             (User, _) -> Fun(User)
                                          end),
    lists:foreach(Fun, ets:select(?HELD, [{{{'$1', '_'}, '_'}, [], ['$1']}])).

%% From now on no session opens; `false' if there is one.
-spec leave(user_number()) -> boolean().
leave(User) ->
    not is_held(User) andalso left(User, halley_directory_atomics:exchange(User, 0, ?LEAVING)).

left(_, ok) -> true;
left(_, ?LEAVING) -> true;
left(User, no_chunk) ->
    ok = gen_server:call(halley_directory, {grow, User}, infinity),
    left(User, halley_directory_atomics:exchange(User, 0, ?LEAVING));
left(_, _) -> false.

-spec is_leaving(user_number()) -> boolean().
is_leaving(User) ->
    halley_directory_atomics:get(halley_directory_atomics:chunks(), User) =:= ?LEAVING.

%% Sessions open again.
-spec stay(user_number()) -> ok.
stay(User) ->
    _ = halley_directory_atomics:exchange(User, ?LEAVING, 0),
    ok.

%% Calls the function for each number that is leaving.
-spec each(fun((user_number()) -> ok)) -> ok.
each(Fun) ->
    halley_directory_atomics:foreach(fun(User, ?LEAVING) -> Fun(User);
                                      (_, _) -> ok
                                   end).
