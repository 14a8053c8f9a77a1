%% A server key: a server shows it to the API, and its scopes say what the server may do.
%%
%% The key itself, `hk_<id>_<secret>', is shown once, when it is made. Kept are its id, name and
%% scopes, when it was made, and its SHA-256. A fast hash is right here: slow hashes protect secrets
%% that people choose. This one is 256 bits from the system's generator and can't be guessed, and it
%% is checked for every request.
%%
%% `line/1' and `from_line/1' are its form in the file: one JSON object on a line.
%%
%% Pure, but for the random bytes of `new/3'. It doesn't know where keys are kept.
-module(halley_server_key).

-export([new/3, id/1, opens/2, line/1, from_line/1, check_name/1, scopes/0, scopes/1]).
-export_type([key/0, scope/0, text/0]).

-type scope() :: publish | follow | read | admin.
%% The whole key, as a server has it. Never stored, never logged.
-type text() :: binary().
-type key() :: #{id := binary(), name := binary(), scopes := [scope()],
                 created_s := non_neg_integer(), hash := binary()}.

-define(ID_DIGITS, 16).
-define(SECRET_DIGITS, 64).
-define(HASH_DIGITS, 64).

-spec scopes() -> [scope()].
scopes() ->
    [publish, follow, read, admin].

%% `Name' and `Scopes' were judged by `check_name/1' and `scopes/1'.
-spec new(Name :: binary(), [scope()], NowS :: non_neg_integer()) -> {text(), key()}.
new(Name, Scopes, NowS) ->
    Id = hex(crypto:strong_rand_bytes(?ID_DIGITS div 2)),
    Secret = hex(crypto:strong_rand_bytes(?SECRET_DIGITS div 2)),
    Text = <<"hk_", Id/binary, $_, Secret/binary>>,
    {Text, #{id => Id, name => Name, scopes => Scopes, created_s => NowS, hash => hash(Text)}}.

%% The id in a text that has the form of a key.
-spec id(binary()) -> {ok, binary()} | error.
id(<<"hk_", Id:?ID_DIGITS/binary, $_, _:?SECRET_DIGITS/binary>>) -> {ok, Id};
id(_) -> error.

%% In a time that doesn't depend on where the two differ.
-spec opens(text(), key()) -> boolean().
opens(Text, #{hash := Hash}) ->
    crypto:hash_equals(Hash, hash(Text)).

hash(Text) ->
    crypto:hash(sha256, Text).

hex(Bytes) ->
    << <<(digit(Half))>> || <<Half:4>> <= Bytes >>.

digit(N) when N < 10 -> $0 + N;
digit(N) -> $a + N - 10.

-spec check_name(binary()) -> ok | {error, iodata()}.
check_name(Name) ->
    case re:run(Name, "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", [dollar_endonly, {capture, none}]) of
        match -> ok;
        nomatch -> {error, "a name is 1 to 64 letters, digits, dots, dashes and underscores and "
                           "begins with a letter or a digit"}
    end.

%% `publish,read' to a list in the order of `scopes/0'.
-spec scopes(binary()) -> {ok, [scope()]} | {error, iodata()}.
scopes(Text) ->
    known(binary:split(Text, <<",">>, [global])).

known(Words) ->
    Scopes = [Scope || Scope <- scopes(), lists:member(atom_to_binary(Scope), Words)],
    case Words -- [atom_to_binary(Scope) || Scope <- scopes()] of
        [] when Scopes =/= [] ->
            {ok, Scopes};
        Unknown ->
            {error, ["scopes are ", lists:join(", ", [atom_to_binary(S) || S <- scopes()]),
                     "; not ", [[$", Word, $"] || Word <- lists:sublist(Unknown, 1)]]}
    end.

-spec line(key()) -> iodata().
line(#{id := Id, name := Name, scopes := Scopes, created_s := CreatedS, hash := Hash}) ->
    [jiffy:encode({[{id, Id}, {name, Name}, {scopes, Scopes}, {created_s, CreatedS},
                    {sha256, hex(Hash)}]}), $\n].

-spec from_line(binary()) -> {ok, key()} | error.
from_line(Line) ->
    try of_json(jiffy:decode(Line, [return_maps]))
    catch _:_ -> error
    end.

of_json(#{<<"id">> := <<_:?ID_DIGITS/binary>> = Id, <<"name">> := Name, <<"scopes">> := Words,
          <<"created_s">> := CreatedS, <<"sha256">> := <<_:?HASH_DIGITS/binary>> = Digits})
  when is_binary(Name), is_list(Words), is_integer(CreatedS) ->
    checked(check_name(Name), known(Words),
            #{id => Id, name => Name, created_s => CreatedS, hash => binary:decode_hex(Digits)});
of_json(_) ->
    error.

checked(ok, {ok, Scopes}, Key) -> {ok, Key#{scopes => Scopes}};
checked(_, _, _) -> error.
