%% Which ids are meant: one id, or all that begin with what stands before a `*' at the end. `*'
%% alone is every id. A `*' elsewhere is a letter as any other.
%%
%% Pure. Configuration, rights of tokens and hooks say subjects and users this way.
-module(halley_pattern).

-export([new/1, text/1, is_match/2, is_any_match/2, is_everything/1]).
-export_type([pattern/0]).

-type pattern() :: {id, halley_id:id()} | {prefix, binary()}.

-spec new(Text :: binary()) -> pattern().
new(Text) ->
    Before = byte_size(Text) - 1,
    case Text of
        <<Prefix:Before/binary, $*>> -> {prefix, Prefix};
        Id -> {id, Id}
    end.

-spec text(pattern()) -> binary().
text({id, Id}) -> Id;
text({prefix, Prefix}) -> <<Prefix/binary, $*>>.

-spec is_match(pattern(), binary()) -> boolean().
is_match({id, Its}, Id) ->
    Its =:= Id;
is_match({prefix, Prefix}, Id) ->
    Bytes = byte_size(Prefix),
    case Id of
        <<Prefix:Bytes/binary, _/binary>> -> true;
        _ -> false
    end.

%% Whether it means every id. `**' means those alone that begin with a star.
-spec is_everything(pattern()) -> boolean().
is_everything(Pattern) ->
    Pattern =:= {prefix, <<>>}.

-spec is_any_match([pattern()], binary()) -> boolean().
is_any_match(Patterns, Id) ->
    lists:any(fun(Pattern) -> is_match(Pattern, Id) end, Patterns).
