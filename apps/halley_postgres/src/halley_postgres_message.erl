%% The events of a transaction, from a logical message or a row of the outbox to an argument of
%% `halley:publish_many/1'. Pure.
%%
%% A message is `{"subject":S,"data":any JSON,"id":optional}', or has `"to":[users]' in place of the
%% subject. As in the HTTP API a member that isn't known, or is there twice, is an error, and the
%% data reaches the followers as it was written.
%%
%% Exactly once needs an id: without one it is made of where the message stands, which is the same
%% whenever it comes again, and is no other message's. A server that was put back, or a standby that
%% was behind when it took over, gives the same places and the same numbers again: so places have
%% the timeline in which they were written, and rows when they were made.
-module(halley_postgres_message).

-export([of_message/2, of_row/2, row_prefix/1, row_source/1, shown/1, id/2]).
-export_type([item/0, origin/0]).

-type item() :: {halley_router:whom(), {json, binary()}, #{id := binary()}}.

%% A server, its timeline, and those before.
-type origin() :: {System :: binary(), Timeline :: pos_integer(), epgsql_replication:history()}.

-define(CONTENT_BYTES_MAX, 1048576).
%% What is longer is shown in part.
-define(SHOWN_BYTES, 65536).
-define(SHOWN_PART, 16384).
-define(SHOWN_NAME, 100).

%% Of what stands at that place without an id of its own. The place is where its record ends, so
%% that of a timeline's last record is the timeline's end.
-spec id(epgsql_replication:lsn(), origin()) -> binary().
id(Lsn, {System, Current, History}) ->
    Text = epgsql_replication:lsn_text(Lsn),
    case [Timeline || {Timeline, End} <- History, Lsn =< End] ++ [Current] of
        [1 | _] -> <<"pg-", System/binary, "-", Text/binary>>;
        [Timeline | _] ->
            <<"pg-", System/binary, ".", (integer_to_binary(Timeline))/binary, "-", Text/binary>>
    end.

%% `Id': what it has if it doesn't say.
-spec of_message(binary(), Id :: binary()) -> {ok, item()} | {error, Reason :: binary()}.
of_message(Content, _) when byte_size(Content) > ?CONTENT_BYTES_MAX ->
    {error, <<"it is too large">>};
of_message(Content, Id) ->
    case halley_json_text:skip(Content, depth_max() + 1) of
        {ok, _} ->
            try jiffy:decode(Content) of
                {Members} -> members(Members, Content, Id, #{});
                _ -> {error, <<"it is JSON, but not an object">>}
            catch
                _:_ -> {error, <<"it is not JSON">>}
            end;
        {error, too_deep, _} ->
            {error, <<"its data has too many arrays and objects in one another">>};
        {error, _, _} ->
            {error, <<"it is not JSON">>}
    end.

depth_max() -> halley_limits:get(event_data_depth_max).

members([{Name, _} | _], _, _, Seen) when is_map_key(Name, Seen) ->
    {error, <<"member ", (cut(Name, ?SHOWN_NAME))/binary, " is there twice">>};
members([{Name, Value} | Rest], Content, Id, Seen)
  when Name =:= <<"subject">>; Name =:= <<"to">>; Name =:= <<"data">>; Name =:= <<"id">> ->
    members(Rest, Content, Id, Seen#{Name => Value});
members([{Name, _} | _], _, _, _) ->
    {error, <<"unknown member ", (cut(Name, ?SHOWN_NAME))/binary>>};
members([], Content, Id, #{<<"data">> := _} = Seen) ->
    case Seen of
        #{<<"subject">> := _, <<"to">> := _} -> {error, <<"it has both subject and to">>};
        #{<<"subject">> := Subject} when is_binary(Subject) -> item(Subject, Content, Id, Seen);
        #{<<"subject">> := _} -> {error, <<"its subject is no text">>};
        #{<<"to">> := Users} -> item({to, Users}, Content, Id, Seen);
        #{} -> {error, <<"it has no subject">>}
    end;
members([], _, _, _) ->
    {error, <<"it has no data">>}.

item(Whom, Content, Default, Seen) ->
    case maps:get(<<"id">>, Seen, null) of
        null -> {ok, {Whom, {json, data(Content)}, #{id => Default}}};
        Id when is_binary(Id) -> {ok, {Whom, {json, data(Content)}, #{id => Id}}};
        _ -> {error, <<"its id is no text">>}
    end.

%% The text of the member `data', which is there once.
data(Content) ->
    <<${, Members/binary>> = string:trim(Content, leading, " \n\t\r"),
    data_of(Members).

data_of(Members) ->
    {ok, AfterName} = halley_json_text:skip(Members, 1),
    Name = binary_part(Members, 0, byte_size(Members) - byte_size(AfterName)),
    <<$:, Text/binary>> = space(AfterName),
    Value = space(Text),
    {ok, Rest} = halley_json_text:skip(Value, depth_max() + 1),
    case jiffy:decode(Name) of
        <<"data">> -> one_line(binary_part(Value, 0, byte_size(Value) - byte_size(Rest)));
        _ ->
            <<$,, More/binary>> = space(Rest),
            data_of(More)
    end.

space(<<C, Rest/binary>>) when C =:= $\s; C =:= $\n; C =:= $\t; C =:= $\r -> space(Rest);
space(Text) -> Text.

%% Line ends and tabs stand between tokens only.
one_line(Value) ->
    binary:replace(Value, [<<"\n">>, <<"\t">>, <<"\r">>], <<>>, [global]).

%% Of a server, by its own identifier.
-spec row_prefix(System :: binary()) -> binary().
row_prefix(System) -> <<"outbox-", System/binary, "-">>.

%% A row of `halley.outbox' by its columns' names; `Prefix', its number and its time make its id.
-spec of_row(#{binary() => epgsql_pgoutput:cell()}, Prefix :: binary()) ->
    {ok, item()} | {error, Reason :: binary()}.
of_row(#{<<"id">> := Number, <<"subject">> := Subject, <<"data">> := Data} = Row, Prefix)
  when is_binary(Subject), is_binary(Data) ->
    case halley_json_text:skip(Data, depth_max()) of
        {ok, _} ->
            Id = case Row of
                #{<<"event_id">> := Chosen} when is_binary(Chosen) -> Chosen;
                #{} -> <<Prefix/binary, Number/binary, (made(Row))/binary>>
            end,
            {ok, {Subject, {json, one_line(Data)}, #{id => Id}}};
        {error, _, _} ->
            {error, <<"its data is no JSON, or has too many arrays and objects in one another">>}
    end;
of_row(_, _) ->
    {error, <<"it has no subject or no data">>}.

%% A row's name in `halley.rejected': a number alone may be given again.
-spec row_source(#{binary() => epgsql_pgoutput:cell()}) -> binary().
row_source(#{<<"id">> := Number} = Row) -> <<"outbox ", Number/binary, (made(Row))/binary>>.

%% As the server writes it, to the stream and to a query.
made(#{<<"created_at">> := At}) when is_binary(At) ->
    <<"-", (integer_to_binary(erlang:crc32(At), 16))/binary>>;
made(_) -> <<>>.

%% --- what is no event ----------------------------------------------------------------------------

%% So much of it is kept, and nothing of what it came in.
-spec shown(binary()) -> binary().
shown(Content) when byte_size(Content) > ?SHOWN_BYTES -> binary:copy(cut(Content, ?SHOWN_PART));
shown(Content) -> binary:copy(Content).

%% Between two characters, where there are any.
cut(Text, Max) when byte_size(Text) =< Max -> Text;
cut(Text, Max) ->
    Part = binary_part(Text, 0, Max),
    case unicode:characters_to_binary(Part) of
        {incomplete, Whole, _} -> Whole;
        _ -> Part
    end.
