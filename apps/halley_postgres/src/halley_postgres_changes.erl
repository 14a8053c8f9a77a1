%% The meaning of a replication stream for Halley: its messages as changes of follows, events and
%% positions, in order. Pure.
%%
%% The server sends a transaction when it is committed, whole; so everything in it is committed, and
%% needn't be gathered. A position comes with the commit, after everything of its transaction.
-module(halley_postgres_changes).

-export([new/4, take/2, without/2]).
-export_type([state/0, step/0]).

-define(PREFIX, <<"halley">>).
%% `halley_postgres_sql:message_prefix/0'.
-define(WRITTEN, <<"halley_follows">>).

%% `stop': a table was altered so that its changes can't be understood any more. `seen': what a
%% write of our own has left in a transaction (`halley_postgres_writes'), behind its changes.
%% `renewed': a table of ours is described, which it is again when something about it has changed.
-type step() :: {change, halley_postgres_follows:change(), Xid :: non_neg_integer()}
              | {event, halley_postgres_flight:event()}
              | {row, {Number :: binary(), Xid :: non_neg_integer()},
                 halley_postgres_flight:event()}
              | {position, non_neg_integer()}
              | {seen, Content :: binary()}
              | {renewed, Table :: binary()}
              | {stop, Table :: binary(), Reason :: binary()}.
%% Changes of a table that were committed before `from' are in its copy.
-type known() :: #{Table :: binary() => #{spec := halley_postgres_config:table(),
                                          oid := epgsql_pgoutput:oid(),
                                          from := non_neg_integer(), _ => _}}.
-record(changes, {decoder = epgsql_pgoutput:new() :: epgsql_pgoutput:state(),
                  tables :: #{epgsql_pgoutput:oid() => {Table :: binary(),
                                                        halley_postgres_config:table(),
                                                        From :: non_neg_integer()}},
                  is_publishing :: boolean(),
                  origin :: halley_postgres_message:origin(),
                  encoding :: halley_postgres_encoding:encoding(),
                  relations = #{} :: #{epgsql_pgoutput:oid() =>
                                           epgsql_pgoutput:relation() | role()},
                  final_lsn = 0 :: non_neg_integer(),
                  seen = [] :: [step()],
                  xid = 0 :: non_neg_integer()}).
-type role() :: {table, Table :: binary(), User :: pos_integer(), Subject :: pos_integer(),
                 From :: non_neg_integer()}
              | {outbox, epgsql_pgoutput:relation()} | none.
-opaque state() :: #changes{}.

%% `Origin' makes ids of events the server's own; `Encoding' is the one of messages.
-spec new(known(), IsPublishing :: boolean(), halley_postgres_message:origin(),
          halley_postgres_encoding:encoding()) -> state().
new(Known, IsPublishing, Origin, Encoding) ->
    Tables = maps:fold(fun(Table, #{spec := Spec, from := From, oid := Oid}, Acc) ->
        Acc#{Oid => {Table, Spec, From}}
    end, #{}, Known),
    #changes{tables = Tables, is_publishing = IsPublishing, origin = Origin,
             encoding = Encoding}.

%% A table isn't followed any more.
-spec without(Table :: binary(), state()) -> state().
without(Table, #changes{tables = Tables, relations = Relations} = State) ->
    State#changes{tables = maps:filter(fun(_, Each) -> element(1, Each) =/= Table end, Tables),
                  relations = maps:map(fun(_, Role) ->
                      case Role of {table, Table, _, _, _} -> none; _ -> Role end
                  end, Relations)}.

-spec take(binary(), state()) -> {[step()], state()}.
take(Data, #changes{decoder = Decoder} = State) ->
    {Message, Decoder1} = epgsql_pgoutput:decode(Data, Decoder),
    step(Message, State#changes{decoder = Decoder1}).

step(#{type := 'begin', final_lsn := Lsn, xid := Xid}, State) ->
    {[], State#changes{final_lsn = Lsn, xid = Xid, seen = []}};
step(#{type := commit, end_lsn := Lsn}, #changes{seen = Seen} = State) ->
    {[{position, Lsn} | Seen], State#changes{seen = []}};
step(#{type := message, prefix := ?WRITTEN, content := Content}, #changes{seen = Seen} = State) ->
    {[], State#changes{seen = [{seen, Content} | Seen]}};
step(#{type := relation, oid := Oid} = Relation,
     #changes{relations = Relations, tables = Tables} = State) ->
    Renewed = case Tables of
        #{Oid := {Table, _, _}} -> [{renewed, Table}];
        #{} -> []
    end,
    {Renewed, State#changes{relations = Relations#{Oid => Relation}}};
step(#{type := message, prefix := ?PREFIX, lsn := Lsn, content := Content},
     #changes{is_publishing = true, origin = Origin, encoding = Encoding} = State) ->
    Id = halley_postgres_message:id(Lsn, Origin),
    {Text, Item} = case halley_postgres_encoding:utf8(Content, Encoding) of
        {ok, Utf8} -> {Utf8, halley_postgres_message:of_message(Utf8, Id)};
        {error, _} = Error -> {Content, Error}
    end,
    {[{event, #{lsn => Lsn, source => <<"message ", Id/binary>>, content => Text,
                item => Item}}], State};
step(#{type := insert, relation := Oid, new := New}, State) ->
    of_relation(Oid, State, fun(Role) -> inserted(Role, New, State) end);
step(#{type := update, relation := Oid, old := Old, new := New}, State) ->
    of_relation(Oid, State, fun(Role) -> changes(updated(Role, Old, New), State) end);
step(#{type := delete, relation := Oid, old := {Kind, Old}}, State) ->
    of_relation(Oid, State, fun(Role) -> changes(deleted(Role, Kind, Old), State) end);
step(#{type := truncate, relations := Oids}, State) ->
    {Steps, State1} = lists:mapfoldl(fun(Oid, Acc) ->
        of_relation(Oid, Acc, fun(Role) -> changes(truncated(Role), State) end)
    end, State, Oids),
    {lists:append(Steps), State1};
step(_, State) ->
    {[], State}.

%% What a table is to Halley is decided by its first change that counts: an older transaction may
%% come with columns that the table hasn't any more.
of_relation(Oid, #changes{relations = Relations, final_lsn = Lsn} = State, Steps) ->
    case Relations of
        #{Oid := {table, _, _, _, From}} when Lsn < From ->
            {[], State};
        #{Oid := #{type := relation} = Relation} ->
            case is_copied(Relation, State) of
                true -> {[], State};
                false ->
                    {Stop, Role} = role(Relation, State),
                    State1 = State#changes{relations = Relations#{Oid => Role}},
                    {Taken, State2} = doubted(Oid, Role, Steps(Role), State1),
                    {Stop ++ Taken, State2}
            end;
        #{Oid := Role} ->
            doubted(Oid, Role, Steps(Role), State)
    end.

%% The null of a key is no value: a partition has another replica identity than its table. Which
%% pair was meant isn't known, and the table is copied anew.
doubted(Oid, {table, Table, _, _, _}, [unknown], #changes{relations = Relations} = State) ->
    {[{stop, Table, <<"a change of a partition didn't say which pair it was about">>},
      {renewed, Table}], State#changes{relations = Relations#{Oid => none}}};
doubted(_, _, Steps, State) ->
    {Steps, State}.

%% Also where the table of that name was another one then.
is_copied(#{oid := Oid} = Relation, #changes{tables = Tables, final_lsn = Lsn}) ->
    case Tables of
        #{Oid := {_, _, From}} -> Lsn < From;
        #{} -> lists:any(fun({_, From}) -> Lsn < From end, named(Relation, Tables))
    end.

named(#{schema := Schema, name := Name}, Tables) ->
    [{Table, From} || {Table, #{schema := InSchema, name := Of}, From} <- maps:values(Tables),
                      InSchema =:= Schema, Of =:= Name].

%% A table is its OID. It may have had another name when it was changed; and who has its name now is
%% another one.
role(#{schema := <<"halley">>, name := <<"outbox">>} = Relation, #changes{is_publishing = true}) ->
    {[], {outbox, Relation}};
role(#{oid := Oid} = Relation, #changes{tables = Tables}) ->
    case Tables of
        #{Oid := {Table, Spec, From}} -> role(Relation, Table, Spec, From);
        #{} ->
            {lists:append([[{stop, Table, <<"there is another table of this name now">>},
                            {renewed, Table}] || {Table, _} <- named(Relation, Tables)]), none}
    end.

role(#{identity := Identity, columns := Columns}, Table, #{user := User, subject := Subject},
     From) ->
    Numbered = maps:from_list(
        [{Name, {N, IsKey orelse Identity =:= full}}
         || {N, #{name := Name, is_key := IsKey}} <- lists:enumerate(Columns)]),
    case Numbered of
        #{User := {UserAt, true}, Subject := {SubjectAt, true}} ->
            {[], {table, Table, UserAt, SubjectAt, From}};
        #{User := _, Subject := _} ->
            {[{stop, Table, <<"its replica identity doesn't have both columns any more">>}], none};
        #{} ->
            [Missing | _] = [Column || Column <- [User, Subject],
                                       not is_map_key(Column, Numbered)],
            {[{stop, Table, <<"it has no column ", Missing/binary, " any more">>}], none}
    end.

changes([unknown], _) -> [unknown];
changes(Changes, #changes{xid = Xid}) ->
    [{change, Change, Xid} || Change <- Changes].

inserted({table, Table, User, Subject, _}, New, State) ->
    changes([{add, Table, pair(User, Subject, New)}], State);
inserted({outbox, Relation}, New, #changes{origin = {System, _, _}, final_lsn = Lsn, xid = Xid}) ->
    #{<<"id">> := Number} = Row = epgsql_pgoutput:row(Relation, New),
    [{row, {Number, Xid}, #{lsn => Lsn, source => halley_postgres_message:row_source(Row),
                     content => case Row of
                                    #{<<"data">> := Data} when is_binary(Data) -> Data;
                                    #{} -> <<>>
                                end,
                     item => halley_postgres_message:of_row(
                         Row, halley_postgres_message:row_prefix(System))}}];
inserted(none, _, _) ->
    [].

%% Without an old row the pair is the same as before. A value that is kept out of line, and stays
%% as it is, comes with the old row alone.
updated({table, Table, User, Subject, _}, {Kind, Old}, New) ->
    {OldUser, OldSubject} = Before = pair(User, Subject, Old),
    {NewUser, NewSubject} = pair(User, Subject, New),
    case {newest(NewUser, OldUser), newest(NewSubject, OldSubject)} of
        _ when Kind =:= key, OldUser =:= null; Kind =:= key, OldSubject =:= null -> [unknown];
        Before -> [];
        Now -> [{remove, Table, Before}, {add, Table, Now}]
    end;
updated(_, _, _) ->
    [].

newest(unchanged, Old) -> Old;
newest(New, _) -> New.

deleted({table, Table, User, Subject, _}, Kind, Old) ->
    case pair(User, Subject, Old) of
        {U, S} when Kind =:= key, U =:= null; Kind =:= key, S =:= null -> [unknown];
        Pair -> [{remove, Table, Pair}]
    end;
deleted(_, _, _) ->
    [].

truncated({table, Table, _, _, _}) -> [{clear, Table}];
truncated(_) -> [].

pair(User, Subject, Cells) ->
    {lists:nth(User, Cells), lists:nth(Subject, Cells)}.
