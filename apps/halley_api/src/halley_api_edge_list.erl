%% An edge list, `U S' on each line, as pairs of ids: the fast way in for millions of follows.
%%
%% Ids hold no blanks here; blanks (space, tab, carriage return) around and between them don't
%% matter, and empty lines say nothing. The usual line, ASCII with one blank between the ids, is
%% read byte by byte in one pass; any other line is set aside for `other_line/1', which is slower
%% and explains what is wrong. Lines come grouped by user as a rule, so a user that repeats is the
%% same term again.
%%
%% Pure; blocks come from `halley_api_lines'.
-module(halley_api_edge_list).

-export([parse/1]).

-include("halley_api_limits.hrl").

%% The bound of `halley_id'; a longer id is left to `other_line/1'.
-define(ID_BYTES_MAX, 255).

%% See `halley_api_follow_lines' for what is given.
-spec parse(Block :: binary()) -> halley_api_follow_lines:parsed().
parse(Block) ->
    user(Block, Block, 0, 0, <<>>, 0, [], []).

%% Block   the whole block; From  where this line starts; At  where the next byte is
%% User    the latest user; Line  this line's place in the block, from 0
user(<<C, Rest/binary>>, Block, From, At, User, Line, Pairs, Skipped) when C > $\s, C < 16#7f ->
    user(Rest, Block, From, At + 1, User, Line, Pairs, Skipped);
user(<<C, Rest/binary>>, Block, From, At, Previous, Line, Pairs, Skipped)
        when C =:= $\s orelse C =:= $\t, At > From, At - From =< ?ID_BYTES_MAX ->
    case binary_part(Block, From, At - From) of
        Previous -> subject(Rest, Block, From, At + 1, At + 1, Previous, Line, Pairs, Skipped);
        User -> subject(Rest, Block, From, At + 1, At + 1, User, Line, Pairs, Skipped)
    end;
user(<<>>, _, From, From, _, Lines, Pairs, Skipped) ->
    {lists:reverse(Pairs), Lines, lists:reverse(Skipped)};
user(_, Block, From, _, User, Line, Pairs, Skipped) ->
    other(Block, From, User, Line, Pairs, Skipped).

subject(<<C, Rest/binary>>, Block, From, SubjectFrom, At, User, Line, Pairs, Skipped)
        when C > $\s, C < 16#7f ->
    subject(Rest, Block, From, SubjectFrom, At + 1, User, Line, Pairs, Skipped);
subject(<<$\n, Rest/binary>>, Block, _, SubjectFrom, At, User, Line, Pairs, Skipped)
        when At > SubjectFrom, At - SubjectFrom =< ?ID_BYTES_MAX ->
    Pair = {User, binary_part(Block, SubjectFrom, At - SubjectFrom)},
    user(Rest, Block, At + 1, At + 1, User, Line + 1, [Pair | Pairs], Skipped);
subject(_, Block, From, _, _, User, Line, Pairs, Skipped) ->
    other(Block, From, User, Line, Pairs, Skipped).

other(Block, From, User, Line, Pairs, Skipped) ->
    {End, 1} = binary:match(Block, <<"\n">>, [{scope, {From, byte_size(Block) - From}}]),
    Next = End + 1,
    <<_:Next/binary, Rest/binary>> = Block,
    case other_line(binary_part(Block, From, End - From)) of
        {ok, Pair} -> user(Rest, Block, Next, Next, User, Line + 1, [Pair | Pairs], Skipped);
        Why -> user(Rest, Block, Next, Next, User, Line + 1, Pairs, [{Line, Why} | Skipped])
    end.

other_line(Line) when byte_size(Line) > ?FOLLOW_LINE_BYTES_MAX ->
    halley_api_follow_lines:line_too_long();
other_line(Line) ->
    case binary:split(Line, [<<" ">>, <<"\t">>, <<"\r">>], [global, trim_all]) of
        [User, Subject] -> halley_api_follow_lines:pair(User, Subject);
        [] -> blank;
        Columns -> bad_line(length(Columns))
    end.

bad_line(Columns) ->
    {400, <<"bad_line">>, ["a line has two columns, user and subject; this one has ",
                           integer_to_list(Columns)]}.
