%% Ids of users and subjects: what is one, and what is wrong with what is not.
%%
%% An id is 1 to 255 bytes of valid UTF-8 without control characters (Unicode's category Cc: U+0000
%% to U+001F and U+007F to U+009F). The contract asks for UTF-8; control characters are refused
%% because ids travel in edge lists, one pair per line, in logs and in the path of a URL, where a
%% newline or a NUL in an id would make one thing look like two. Everything else is allowed, spaces
%% included, and nothing is normalised: two ids are the same if their bytes are.
%%
%% Only new ids are judged. The store asks nothing of what it reads back: a build before this one
%% took U+0080 to U+009F, and what was stored then still loads.
-module(halley_id).

-export([check/1, explain/1]).

-export_type([id/0, user_number/0, reason/0]).

-define(BYTES_MAX, 255).

-type id() :: <<_:8, _:_*8>>.
%% Given by `halley_ids`, dense from 1; zero belongs to nobody.
-type user_number() :: 0..16#7ffffff.
-type reason() :: not_text | empty | too_long | not_utf8 | control_character.

-spec check(term()) -> ok | {error, reason()}.
check(<<>>) -> {error, empty};
check(Id) when is_binary(Id), byte_size(Id) =< ?BYTES_MAX -> check_text(Id);
check(Id) when is_binary(Id) -> {error, too_long};
check(_) -> {error, not_text}.

check_text(<<C, Rest/binary>>) when C >= 16#20, C < 16#7f -> check_text(Rest);
check_text(<<C, _/binary>>) when C =< 16#7f -> {error, control_character};
check_text(<<16#c2, C, _/binary>>) when C >= 16#80, C =< 16#9f -> {error, control_character};
check_text(<<_/utf8, Rest/binary>>) -> check_text(Rest);
check_text(<<>>) -> ok;
check_text(_) -> {error, not_utf8}.

%% One sentence for the sender of the id.
-spec explain(reason()) -> binary().
explain(not_text) -> <<"an id must be text">>;
explain(empty) -> <<"an id must not be empty">>;
explain(too_long) -> <<"an id must not be longer than 255 bytes">>;
explain(not_utf8) -> <<"an id must be valid UTF-8">>;
explain(control_character) ->
    <<"an id must not contain control characters (U+0000 to U+001F, U+007F to U+009F)">>.
