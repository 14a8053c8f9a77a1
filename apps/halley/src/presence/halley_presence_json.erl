%% Presence messages as JSON on one line (http.md 22.7).
-module(halley_presence_json).

-export([change/3, update/3, state/4, states/1, large/2, online/2]).
-export_type([said/0]).

%% More bytes of names than a frame has room for beside its connections (link.md 15.1) are counted.
-define(NAMES_BYTES_MAX, 131072).
%% And of the states beside them; what has no room follows, each by itself.
-define(STATES_BYTES_MAX, 49152).

%% Users that have a state, and what their sessions said.
-type said() :: [{User :: halley_id:id(), Text :: binary()}].

-spec change(halley_id:id(), {User :: halley_id:id(), halley_presence_throttle:text()},
             join | leave) -> binary().
change(Subject, {User, Said}, What) ->
    Data = case Said of none -> []; {ok, Text} -> [",\"data\":", Text] end,
    text(Subject, [",\"user\":", string(User), ",\"state\":\"", atom_to_binary(What), $", Data]).

%% What a user's session says of itself has changed.
-spec update(halley_id:id(), User :: halley_id:id(), halley_presence_throttle:text()) -> binary().
update(Subject, User, Said) ->
    Data = case Said of none -> <<"null">>; {ok, Text} -> Text end,
    text(Subject, [",\"user\":", string(User), ",\"state\":\"update\",\"data\":", Data]).

%% All that are there, and what they say of themselves: one text, and others for what has no room.
-spec state(halley_id:id(), Visitors :: non_neg_integer(), Users :: [halley_id:id()], said()) ->
    [binary(), ...].
state(Subject, Visitors, Users, Said) ->
    Names = lists:join($,, [string(User) || User <- Users]),
    Online = length(Users) + Visitors,
    case iolist_size(Names) > ?NAMES_BYTES_MAX of
        true ->
            [large(Subject, Online)];
        false ->
            {Now, Later} = fitting(Said, ?STATES_BYTES_MAX, []),
            [text(Subject, [count(Online), ",\"users\":[", Names, $] | states(Now)])
             | [update(Subject, User, {ok, Text}) || {User, Text} <- Later]]
    end.

fitting([{User, Text} = One | Said], Room, Now) when byte_size(Text) + 1536 =< Room ->
    fitting(Said, Room - byte_size(Text) - byte_size(string_of(User)) - 4, [One | Now]);
fitting(Later, _, Now) ->
    {lists:reverse(Now), Later}.

string_of(User) -> iolist_to_binary(string(User)).

%% A member of an object, behind others; nothing where nobody has a state.
-spec states(said()) -> iodata().
states([]) -> [];
states(Said) ->
    [",\"states\":{", lists:join($,, [[string(User), $:, Text] || {User, Text} <- Said]), $}].

%% Those that are counted alone.
-spec large(halley_id:id(), non_neg_integer()) -> binary().
large(Subject, Online) ->
    text(Subject, [count(Online), ",\"users\":null"]).

%% How many there are; the users are those that are known.
-spec online(halley_id:id(), non_neg_integer()) -> binary().
online(Subject, Online) ->
    text(Subject, count(Online)).

count(Online) -> [",\"online\":", integer_to_binary(Online)].

text(Subject, Members) ->
    iolist_to_binary(["{\"presence\":{\"subject\":", string(Subject), Members, "}}"]).

string(Id) -> [$", halley_event:escape(Id), $"].
