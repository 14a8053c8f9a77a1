%% The users that a session with `presence=*' may see (http.md 22.6): its *view*, the patterns of
%% the right `presence', or all users.
%%
%% A session's rights are with its worker, if anywhere: so that a brain that begins reveals no more
%% than the one before it did, the worker sends the view again, in *pieces* among the session's
%% subscriptions: the byte 4, with which no id begins, the piece's number, and a part of the
%% patterns, each after its length (link.md 19). They are no subjects. `halley_subscriptions' keeps
%% them in the session's row, so a reader of the subscription reads the view, too.
%%
%% Invariant: without pieces it is everybody; what isn't understood gives nothing.
-module(halley_presence_views).

-export([split/1, read/1, pieces/1, allows/2, of_session/1]).
-export_type([view/0, piece/0]).

-define(VIEW, 4).
-define(PIECE_BYTES, 253).
%% What a session is subscribed to that asked for all whom its user follows.
-define(EVERYBODY, <<1, $*>>).

-type view() :: everybody | [halley_pattern:pattern()].
-type piece() :: <<_:16, _:_*8>>.

%% The pieces among what a session is subscribed to, and the others.
-spec split([binary()]) -> {[piece()], [binary()]}.
split(All) ->
    lists:partition(fun(<<?VIEW, _/binary>>) -> true; (_) -> false end, All).

%% What these, in order, say; `error' if they are no view: what a worker says may be a lie.
-spec read([piece()]) -> view() | error.
read([]) ->
    everybody;
read(Pieces) ->
    case lists:unzip([{N, Part} || <<_, N, Part/binary>> <- Pieces]) of
        {Numbers, Parts} when length(Numbers) =:= length(Pieces) ->
            case Numbers =:= lists:seq(0, length(Pieces) - 1) of
                true -> patterns(iolist_to_binary(Parts), []);
                false -> error
            end;
        _ ->
            error
    end.

patterns(<<Bytes, Text:Bytes/binary, Rest/binary>>, Patterns) ->
    patterns(Rest, [halley_pattern:new(Text) | Patterns]);
patterns(<<>>, Patterns) ->
    lists:reverse(Patterns);
patterns(_, _) ->
    error.

%% A pattern that is longer than any id can be is left out.
-spec pieces(view()) -> [piece()].
pieces(everybody) ->
    [];
pieces(Patterns) ->
    cut(<< <<(byte_size(Text)), Text/binary>>
           || Pattern <- Patterns, Text <- [halley_pattern:text(Pattern)],
              byte_size(Text) =< 255 >>, 0).

%% Nobody is one piece: without any it would be everybody.
cut(<<Part:?PIECE_BYTES/binary, Rest/binary>>, N) when Rest =/= <<>> ->
    [<<?VIEW, N, Part/binary>> | cut(Rest, N + 1)];
cut(Part, N) ->
    [<<?VIEW, N, Part/binary>>].

-spec allows(view() | error, User :: halley_id:id()) -> boolean().
allows(everybody, _) -> true;
allows(error, _) -> false;
allows(Patterns, User) -> halley_pattern:is_any_match(Patterns, User).

%% Whom a session may see that asked for all whom its user follows; `none' if it has not asked. Both
%% are in one row, so nobody finds the one without the other.
-spec of_session(halley_directory:word()) -> none | view() | error.
of_session(Word) ->
    case ets:lookup(halley_subscriptions, Word) of
        [{_, _, _, Packed}] ->
            {Pieces, Others} = split([One || <<Bytes, One:Bytes/binary>> <= Packed]),
            case lists:member(?EVERYBODY, Others) of
                true -> read(Pieces);
                false -> none
            end;
        [] ->
            none
    end.
