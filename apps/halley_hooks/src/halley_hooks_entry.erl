%% Codec of the queue's records (docs/internals/hooks.md, "Files"). Bytes in, bytes out.
%%
%%   magic:32 length:32 crc:32 body                                length is that of the body
%%
%% The magic begins with a byte that UTF-8 never has, so no id passes for a record when damage makes
%% `resync/2' search for the next one. Any bytes give an answer, none a crash, and no length is
%% believed before it is compared with what is there.
-module(halley_hooks_entry).

-export([encode/1, decode/1, framed/1, unframed/1, resync/2]).
-export_type([entry/0, key/0]).

-type key() :: {user | subject, halley_id:id()}.
-type change() :: opened | closed | occupied | vacated.
%% `header': begins a segment: a random number that names it, the store of the history that its
%% seqs are of, and how many bytes of the segment before it count.
%% `told', `complete': the header is followed by all users and subjects that were told of as there,
%% and then by what the last two say; before `complete' a segment means nothing.
%% `position': up to where the history is in the queue, for each of the two that read it.
-type entry() ::
    {header, Name :: non_neg_integer(), Store :: non_neg_integer(), Before :: non_neg_integer()}
  | {told, [key()]}
  | {complete, halley_cursor:vector(), halley_cursor:vector()}
  | {position, halley_cursor:vector(), halley_cursor:vector()}
  | {change(), AtMs :: integer(), halley_id:id()}
  | {published, halley_history:seq()}
  | {undelivered, halley_history:seq(), More :: boolean(), [halley_id:id()]}
  | {gap, too_old | damaged, FromMs :: integer(), ToMs :: integer()}.

-define(MAGIC, 16#FF484B51).
-define(HEAD_BYTES, 12).
-define(BODY_BYTES_MAX, 1048576).
-define(CHANGES, #{opened => 1, closed => 2, occupied => 3, vacated => 4}).

-spec encode(entry()) -> iodata().
encode(Entry) -> framed(iolist_to_binary(body(Entry))).

%% A record of any body.
-spec framed(binary()) -> iodata().
framed(Body) -> [<<?MAGIC:32, (byte_size(Body)):32, (erlang:crc32(Body)):32>>, Body].

body({header, Name, Store, Before}) -> <<10, Name:32, Store:32, Before:64>>;
body({told, Keys}) -> [<<11, (length(Keys)):16>> | [[kind(Kind) | text(Id)] || {Kind, Id} <- Keys]];
body({complete, A, B}) -> [12, vector(A), vector(B)];
body({position, A, B}) -> [13, vector(A), vector(B)];
body({published, Seq}) -> <<5, Seq:64>>;
body({undelivered, Seq, More, Users}) ->
    [<<6, Seq:64, (case More of true -> 1; false -> 0 end), (length(Users)):16>>
     | [text(User) || User <- Users]];
body({gap, too_old, From, To}) -> <<7, 1, From:64, To:64>>;
body({gap, damaged, From, To}) -> <<7, 2, From:64, To:64>>;
body({Change, At, Id}) -> [<<(map_get(Change, ?CHANGES)), At:64>> | text(Id)].

kind(user) -> 1;
kind(subject) -> 2.

text(Id) -> [byte_size(Id), Id].

vector(Vector) -> << <<Seq:64>> || Seq <- tuple_to_list(Vector) >>.

%% The record at the beginning of the bytes. `more': it isn't all there.
-spec decode(binary()) -> {ok, entry(), Bytes :: pos_integer()} | more | damaged.
decode(Bytes) ->
    case unframed(Bytes) of
        {ok, Body, Size} ->
            case read(Body) of
                {ok, Entry} -> {ok, Entry, Size};
                damaged -> damaged
            end;
        Other -> Other
    end.

-spec unframed(binary()) -> {ok, Body :: binary(), Bytes :: pos_integer()} | more | damaged.
unframed(<<?MAGIC:32, Length:32, Crc:32, Rest/binary>>) when Length =< ?BODY_BYTES_MAX ->
    case Rest of
        <<Body:Length/binary, _/binary>> ->
            case erlang:crc32(Body) of
                Crc -> {ok, Body, ?HEAD_BYTES + Length};
                _ -> damaged
            end;
        _ -> more
    end;
unframed(Bytes) when byte_size(Bytes) < ?HEAD_BYTES -> more;
unframed(_) -> damaged.

read(<<Kind, At:64/signed, Bytes, Id:Bytes/binary>>) when Kind >= 1, Kind =< 4, Bytes > 0 ->
    [Change] = [C || {C, K} <- maps:to_list(?CHANGES), K =:= Kind],
    {ok, {Change, At, binary:copy(Id)}};
read(<<5, Seq:64>>) -> {ok, {published, Seq}};
read(<<6, Seq:64, More, Count:16, Rest/binary>>) ->
    case texts(Count, Rest, []) of
        damaged -> damaged;
        Users -> {ok, {undelivered, Seq, More =:= 1, Users}}
    end;
read(<<7, 1, From:64/signed, To:64/signed>>) -> {ok, {gap, too_old, From, To}};
read(<<7, 2, From:64/signed, To:64/signed>>) -> {ok, {gap, damaged, From, To}};
read(<<10, Name:32, Store:32, Before:64>>) -> {ok, {header, Name, Store, Before}};
read(<<11, Count:16, Rest/binary>>) ->
    case keys(Count, Rest, []) of
        damaged -> damaged;
        Keys -> {ok, {told, Keys}}
    end;
read(<<12, A:64/binary, B:64/binary>>) -> {ok, {complete, of_vector(A), of_vector(B)}};
read(<<13, A:64/binary, B:64/binary>>) -> {ok, {position, of_vector(A), of_vector(B)}};
read(_) -> damaged.

of_vector(Bytes) -> list_to_tuple([Seq || <<Seq:64>> <= Bytes]).

texts(0, <<>>, Texts) -> lists:reverse(Texts);
texts(Left, <<Bytes, Id:Bytes/binary, Rest/binary>>, Texts) when Left > 0 ->
    texts(Left - 1, Rest, [binary:copy(Id) | Texts]);
texts(_, _, _) -> damaged.

keys(0, <<>>, Keys) -> lists:reverse(Keys);
keys(Left, <<1, Bytes, Id:Bytes/binary, Rest/binary>>, Keys) when Left > 0 ->
    keys(Left - 1, Rest, [{user, binary:copy(Id)} | Keys]);
keys(Left, <<2, Bytes, Id:Bytes/binary, Rest/binary>>, Keys) when Left > 0 ->
    keys(Left - 1, Rest, [{subject, binary:copy(Id)} | Keys]);
keys(_, _, _) -> damaged.

%% Where the next record may begin, from this offset on.
-spec resync(binary(), non_neg_integer()) -> {ok, non_neg_integer()} | none.
resync(Bytes, From) when From < byte_size(Bytes) ->
    case binary:match(Bytes, <<?MAGIC:32>>, [{scope, {From, byte_size(Bytes) - From}}]) of
        {Offset, _} -> {ok, Offset};
        nomatch -> none
    end;
resync(_, _) -> none.
