%% A line of COPY's text format with two columns. Pure.
%%
%% PostgreSQL's documentation, COPY, "Text Format". A cell with a backslash is a null or has a
%% character that can't be there as it is.
-module(halley_postgres_copy_row).

-export([pair/1]).

-spec pair(binary()) -> {binary() | null, binary() | null}.
pair(Line) ->
    Size = byte_size(Line),
    {Tab, 1} = binary:match(Line, <<"\t">>),
    <<First:Tab/binary, _, Second:(Size - Tab - 2)/binary, $\n>> = Line,
    case binary:match(Line, <<"\\">>) of
        nomatch -> {First, Second};
        _ -> {cell(First), cell(Second)}
    end.

cell(<<"\\N">>) -> null;
cell(Text) -> unescaped(Text, <<>>).

unescaped(<<$\\, C, Rest/binary>>, Acc) -> unescaped(Rest, <<Acc/binary, (character(C))>>);
unescaped(<<C, Rest/binary>>, Acc) -> unescaped(Rest, <<Acc/binary, C>>);
unescaped(<<>>, Acc) -> Acc.

character($b) -> $\b;
character($f) -> $\f;
character($n) -> $\n;
character($r) -> $\r;
character($t) -> $\t;
character($v) -> $\v;
character(C) -> C.
