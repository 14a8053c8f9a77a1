%% The content of a request with hooks: its text, and the signature of that.
%%
%%   {"hooks":[{"id":…,"type":…,…}, …]}
%%   halley-signature: t=<seconds since the epoch>,v1=<HMAC-SHA256, in hex>
%%
%% Signed is `v1:<t>:' and then the body, by each of the secrets in turn.
-module(halley_hooks_body).

-export([hook/2, text/1, connect/1, headers/2, secrets/1, read_secrets/1]).
-export_type([what/0, record/0]).

%% An event's record in the history.
-type record() :: halley_history_record:record().
-type what() :: {opened | closed | occupied | vacated, AtMs :: integer(), halley_id:id()}
              | {published, record()}
              | {undelivered, record(), More :: boolean(), [halley_id:id()]}
              | {gap, too_old | damaged, FromMs :: integer(), ToMs :: integer()}
              | test.

-define(SECRET_BYTES_MIN, 32).
-define(SECRET_BYTES_MAX, 255).

%% One hook; it has the same id however often it is sent.
-spec hook(Id :: binary(), what()) -> iodata().
hook(Id, What) ->
    [<<"{\"id\":\"">>, Id, <<"\",\"type\":\"">> | rest(What)].

rest({Type, At, Id}) when Type =:= opened; Type =:= closed ->
    [atom_to_binary(Type), <<"\",\"user\":">>, quoted(Id), at(At)];
rest({Type, At, Id}) when Type =:= occupied; Type =:= vacated ->
    [atom_to_binary(Type), <<"\",\"subject\":">>, quoted(Id), at(At)];
rest({published, #{by := By} = Record}) ->
    [<<"published\",\"user\":">>, quoted(By), to(Record), event(Record)];
rest({undelivered, Record, More, Users}) ->
    [<<"undelivered\",\"users\":">>, list(Users), [<<",\"more\":true">> || More], event(Record)];
rest({gap, Reason, From, To}) ->
    [<<"gap\",\"reason\":\"">>, atom_to_binary(Reason), <<"\",\"from\":">>, integer_to_list(From),
     <<",\"to\":">>, integer_to_list(To), $}];
rest(test) ->
    [<<"test\"}">>].

at(At) -> [<<",\"at\":">>, integer_to_list(At), $}].

%% Whom a private event is for; those that were forgotten have no id any more.
to(#{users := Users}) -> [<<",\"to\":">>, list([User || User <- Users, User =/= <<>>])];
to(_) -> [].

event(#{json := Json}) -> [<<",\"event\":">>, Json, $}].

list(Ids) -> [$[, lists:join($,, [quoted(Id) || Id <- Ids]), $]].

quoted(Id) -> [$", halley_event:escape(Id), $"].

-spec text([iodata()]) -> iodata().
text(Hooks) -> [<<"{\"hooks\":[">>, lists:join($,, Hooks), <<"]}">>].

%% What is asked about a user that wants to connect.
-spec connect(halley_id:id()) -> iodata().
connect(User) -> [<<"{\"connect\":{\"user\":">>, quoted(User), <<"}}">>].

%% Signed as of now.
-spec headers(Secrets :: [binary(), ...], Body :: iodata()) -> [halley_hooks_http:header()].
headers(Secrets, Body) ->
    [{<<"content-type">>, <<"application/json">>},
     {<<"halley-signature">>, signature(Secrets, halley_clock:wall_s(), Body)}].

signature(Secrets, Second, Body) ->
    Time = integer_to_binary(Second),
    [<<"t=">>, Time | [[<<",v1=">>, hex(crypto:mac(hmac, sha256, Secret,
                                                   [<<"v1:">>, Time, $:, Body]))]
                       || Secret <- Secrets]].

hex(Bytes) -> string:lowercase(binary:encode_hex(Bytes)).

%% The one of now, and the one before it if there is one.
-spec read_secrets(file:filename()) -> {ok, [binary(), ...]} | {error, iodata()}.
read_secrets(File) ->
    case file:read_file(File) of
        {ok, Text} -> secrets(Text);
        {error, Reason} -> {error, ["hooks.secret_file: ", File, " cannot be read: ",
                                    file:format_error(Reason)]}
    end.

-spec secrets(binary()) -> {ok, [binary(), ...]} | {error, iodata()}.
secrets(Text) ->
    Lines = [Line || is_list(unicode:characters_to_list(Text)),
                     Part <- binary:split(Text, <<"\n">>, [global]),
                     (Line = string:trim(Part)) =/= <<>>],
    IsGood = fun(Line) -> byte_size(Line) >= ?SECRET_BYTES_MIN
                              andalso byte_size(Line) =< ?SECRET_BYTES_MAX end,
    case length(Lines) >= 1 andalso length(Lines) =< 2 andalso lists:all(IsGood, Lines) of
        true -> {ok, Lines};
        false -> {error, "hooks.secret_file: must have one secret of 32 to 255 characters, and at "
                         "most one more, on a line of its own; `openssl rand -hex 32` makes one"}
    end.
