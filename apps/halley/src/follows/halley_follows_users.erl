%% Which users follow anything, page by page, in the order of their numbers: for exports.
%%
%% It walks over the numbers of all ids, and looks at `NUMBERS_MAX' of them for a page. So before
%% the end a page may have fewer users than it has room for, even none. It takes no snapshot: it
%% sees each user that followed something from its beginning to its end.
%%
%% A page ends at a number and not at an id: its last user may leave, and come back with another
%% number.
-module(halley_follows_users).

-export([page/2, page/3]).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().
%% Up to which number the pages before have looked, in decimal digits.
-type place() :: binary().

%% Some tens of milliseconds of work.
-define(NUMBERS_MAX, 100000).

%% At most `Limit' users behind that place, and the place where to go on.
-spec page(After :: place() | start, Limit :: pos_integer()) ->
    {[id()], Next :: place() | done} | {error, {unknown_id, binary()}}.
page(After, Limit) -> page(After, Limit, ?NUMBERS_MAX).

%% The same, looking at so many numbers.
-spec page(After :: place() | start, Limit :: pos_integer(), NumbersMax :: pos_integer()) ->
    {[id()], Next :: place() | done} | {error, {unknown_id, binary()}}.
page(start, Limit, NumbersMax) -> page_from(1, Limit, NumbersMax);
page(After, Limit, NumbersMax) ->
    try binary_to_integer(After) of
        Number when Number > 0 -> page_from(Number + 1, Limit, NumbersMax);
        _ -> {error, {unknown_id, After}}
    catch
        error:badarg -> {error, {unknown_id, After}}
    end.

page_from(First, Limit, NumbersMax) ->
    walk(First, First + NumbersMax - 1, halley_ids_pages:last(), Limit, []).

walk(Number, _, Last, _, Users) when Number > Last ->
    {lists:reverse(Users), done};
walk(Number, Until, _, Left, Users) when Left =:= 0; Number > Until ->
    {lists:reverse(Users), integer_to_binary(Number - 1)};
walk(Number, Until, Last, Left, Users) ->
    case user(Number) of
        none -> walk(Number + 1, Until, Last, Left, Users);
        Id -> walk(Number + 1, Until, Last, Left - 1, [Id | Users])
    end.

-spec user(user_number()) -> id() | none.
user(Number) ->
    case halley_follows_graph:take_following(Number, 0, 1) of
        [] -> none;
        %% It may have ended its follows and left since.
        [_] -> named(halley_ids_pages:id(Number))
    end.

named(<<>>) -> none;
named(Id) -> binary:copy(Id).
