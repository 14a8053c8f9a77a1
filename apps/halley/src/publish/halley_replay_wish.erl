%% The text in place of a cursor while a session begins with the newest events about its
%% subscriptions (protocol/http.md 25): `last-N' requests N about each of its subjects.
%%
%% When the session begins the brain writes it as `last-N-C', where C is the cursor of that moment:
%% the newest up to C, then all that was published after it. The N events carry `last-N_S-C', where
%% S is the seq of the last one that was given. So a client that comes back gets the others of the
%% N, and of everything else the events since it began, never earlier ones. The last of the N has C
%% itself.
%%
%% Pure, but for begins/1. Like a cursor it is no secret and no proof.
-module(halley_replay_wish).

-export([read/1, begins/1, new/2, behind/2, given/1, given/2, count/1, token/1]).
-export_type([wish/0]).

%% `behind': none where nobody has said when the session began.
-record(wish, {count :: pos_integer(), given = 0 :: halley_cursor:seq(),
               behind = none :: none | halley_cursor:token()}).
-opaque wish() :: #wish{}.

%% `none': it is no wish, but a cursor or nonsense.
-spec read(halley_cursor:token()) ->
    {ok, wish(), Behind :: none | halley_cursor:token()} | malformed | none.
read(<<"last-", Rest/binary>>) ->
    [Numbers | Behind] = binary:split(Rest, <<"-">>),
    case {[number(Text) || Text <- binary:split(Numbers, <<"_">>)], Behind} of
        {[Count], []} when is_integer(Count), Count > 0 ->
            {ok, #wish{count = Count}, none};
        {[Count], [C]} when is_integer(Count), Count > 0 ->
            {ok, #wish{count = Count, behind = C}, C};
        {[Count, Given], [C]} when is_integer(Count), Count > 0, is_integer(Given) ->
            {ok, #wish{count = Count, given = Given, behind = C}, C};
        _ ->
            malformed
    end;
read(_) ->
    none.

%% Digits, no more than a seq has.
number(<<First, _/binary>> = Text) when First >= $0, First =< $9, byte_size(Text) =< 15 ->
    try binary_to_integer(Text)
    catch error:badarg -> none
    end;
number(_) ->
    none.

%% The cursor of a session that is about to have its welcome. A wish says from then on where the
%% session began, as its replay may have to wait.
-spec begins(halley_cursor:token()) -> {began | same, halley_cursor:token()}.
begins(Token) ->
    case read(Token) of
        {ok, Wish, none} ->
            Now = halley_cursor:encode(halley_history:store(), halley_clock:wall_s(),
                                       halley_history:heads()),
            {began, token(behind(Now, Wish))};
        _ ->
            {same, Token}
    end.

%% An empty cursor stands for: not said.
-spec new(Count :: pos_integer(), Behind :: halley_cursor:token() | <<>>) -> wish().
new(Count, <<>>) -> #wish{count = Count};
new(Count, Behind) -> #wish{count = Count, behind = Behind}.

-spec count(wish()) -> pos_integer().
count(#wish{count = Count}) -> Count.

-spec behind(halley_cursor:token(), wish()) -> wish().
behind(Cursor, Wish) -> Wish#wish{behind = Cursor}.

%% Up to which seq the newest were given: 0 for none.
-spec given(wish()) -> halley_cursor:seq().
given(#wish{given = Given}) -> Given.

-spec given(halley_cursor:seq(), wish()) -> wish().
given(Seq, Wish) -> Wish#wish{given = Seq}.

-spec token(wish()) -> halley_cursor:token().
token(#wish{count = Count, behind = none}) ->
    <<"last-", (integer_to_binary(Count))/binary>>;
token(#wish{count = Count, given = 0, behind = Behind}) ->
    <<"last-", (integer_to_binary(Count))/binary, $-, Behind/binary>>;
token(#wish{count = Count, given = Given, behind = Behind}) ->
    <<"last-", (integer_to_binary(Count))/binary, $_, (integer_to_binary(Given))/binary, $-,
      Behind/binary>>.
