%% A look at the tables while the stream runs: which of those that are followed can't be any more or
%% aren't what was copied, which have an index that makes pairs unique, and which of those that were
%% left out are right again.
%%
%% It asks the catalogs alone and changes nothing.
-module(halley_postgres_look).

-export([tables/3]).
-export_type([over/0]).

%% `stopped': something is missing; `altered': it has to be copied anew.
-type over() :: {stopped, iodata()} | {altered, [string()]}.

%% `Right' is empty where no stream could begin.
-spec tables(epgsql:connection(), halley_postgres_config:settings(),
             #{Table => #{shape := halley_postgres_shape:shape(), _ => _}}) ->
    #{over := [{Table, over()}], unique := #{Table => boolean()}, right := [Table]}
    when Table :: binary().
tables(C, #{server := Server} = Settings, Sources) ->
    #{user := User} = Server(),
    #{findings := Findings, unpublished := Unpublished, tables := Tables} =
        halley_postgres_catalog:look(C, unicode:characters_to_binary(User),
                                     Settings#{publish := false}),
    Looks = [{Text, Unpublished ++ Each, Shape, maps:find(Text, Sources)}
             || #{spec := #{text := Text}, findings := Each, shape := Shape} <- Tables],
    Over = [{Text, Why} || {Text, Each, Shape, {ok, Source}} <- Looks,
                           Why <- over(Each, Source, Shape)],
    #{over => Over,
      unique => maps:from_list([{Text, halley_postgres_shape:is_unique(Before, Shape)}
                                || {Text, _, Shape, {ok, #{shape := Before}}} <- Looks]),
      right => [Text || Findings =:= [], {Text, [], _, Source} <- Looks,
                        Source =:= error orelse lists:keymember(Text, 1, Over)]}.

over([#{what := What} | _], _, _) -> [{stopped, What}];
over([], #{shape := Before}, Shape) ->
    [{altered, Why} || [_ | _] = Why <- [halley_postgres_shape:differences(Before, Shape)]].
