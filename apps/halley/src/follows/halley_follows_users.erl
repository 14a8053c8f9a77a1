%% Which users follow anything, page by page, in the order of their numbers: for exports.
%%
%% It walks over the numbers of all ids, and looks at `NUMBERS_MAX' of them for a page. So before
%% the end a page may have fewer users than it has room for, even none. It takes no snapshot: it
%% sees each user that followed something from its beginning to its end.
-module(halley_follows_users).

-export([page/2, page/3]).

-type id() :: halley_id:id().
-type user_number() :: halley_id:user_number().

%% Some tens of milliseconds of work.
-define(NUMBERS_MAX, 100000).

%% At most `Limit' users behind the id `After', and after which to go on.
-spec page(After :: id() | start, Limit :: pos_integer()) ->
    {[id()], Next :: id() | done} | {error, {unknown_id, id()}}.
page(After, Limit) -> page(After, Limit, ?NUMBERS_MAX).

%% The same, looking at so many numbers.
-spec page(After :: id() | start, Limit :: pos_integer(), NumbersMax :: pos_integer()) ->
    {[id()], Next :: id() | done} | {error, {unknown_id, id()}}.
page(start, Limit, NumbersMax) -> page_from(1, Limit, NumbersMax);
page(After, Limit, NumbersMax) ->
    case halley_ids:lookup(After) of
        undefined -> {error, {unknown_id, After}};
        Number -> page_from(Number + 1, Limit, NumbersMax)
    end.

page_from(First, Limit, NumbersMax) ->
    walk(First, First + NumbersMax - 1, halley_ids_pages:last(), Limit, []).

%% Behind the bound it goes on to the next id, which can be the `after' of the next page.
walk(Number, _, Last, _, Users) when Number > Last ->
    {lists:reverse(Users), done};
walk(Number, Until, Last, Left, Users) ->
    case found(Number) of
        none -> walk(Number + 1, Until, Last, Left, Users);
        Id ->
            {Left1, Listed} = case follows(Number) of
                true -> {Left - 1, [Id | Users]};
                false -> {Left, Users}
            end,
            case Number < Last andalso (Left1 =:= 0 orelse Number >= Until) of
                true -> {lists:reverse(Listed), Id};
                false -> walk(Number + 1, Until, Last, Left1, Listed)
            end
    end.

%% An id that has left has its name for a while, but can be no page's `after'.
-spec found(user_number()) -> id() | none.
found(Number) ->
    Id = binary:copy(halley_ids_pages:id(Number)),
    case Id =/= <<>> andalso halley_ids:lookup(Id) of
        Number -> Id;
        _ -> none
    end.

follows(Number) -> halley_follows_graph:take_following(Number, 0, 1) =/= [].
