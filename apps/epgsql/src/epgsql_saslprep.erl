%% SASLprep of passwords, RFC 4013, as PostgreSQL does it: a password that isn't UTF-8, or has a
%% character that is prohibited or unassigned (as emoji are in Unicode 3.2), or breaks the rule on
%% text in two directions (RFC 3454, 6), is used as it is. Like PostgreSQL it asks that of the
%% characters before they are normalized.
%%
%% Pure.
-module(epgsql_saslprep).

-export([prepare/1]).

-spec prepare(iodata()) -> binary().
prepare(Password) ->
    Bytes = bytes(Password),
    case is_ascii(Bytes) of
        true -> Bytes;
        false -> normalized(Bytes)
    end.

bytes(Password) ->
    try iolist_to_binary(Password)
    catch error:badarg -> <<_/binary>> = unicode:characters_to_binary(Password)
    end.

is_ascii(Bytes) -> << <<Byte>> || <<Byte>> <= Bytes, Byte > 127 >> =:= <<>>.

normalized(Bytes) ->
    case unicode:characters_to_list(Bytes) of
        Characters when is_list(Characters) ->
            Mapped = lists:flatmap(fun map/1, Characters),
            case is_taken(Mapped) andalso unicode:characters_to_nfkc_binary(Mapped) of
                <<_/binary>> = Normal -> Normal;
                _ -> Bytes
            end;
        _ -> Bytes
    end.

is_taken([]) -> false;
is_taken(Characters) ->
    not lists:any(fun(C) -> prohibited(C) orelse epgsql_saslprep_tables:is_unassigned(C) end,
                  Characters)
        andalso is_one_way(Characters).

%% RFC 3454, 6: with one character from right to left none goes the other way, and such stand at
%% both ends.
is_one_way([First | _] = Characters) ->
    IsRight = fun epgsql_saslprep_tables:is_right_to_left/1,
    not lists:any(IsRight, Characters)
        orelse IsRight(First) andalso IsRight(lists:last(Characters))
        andalso not lists:any(fun epgsql_saslprep_tables:is_left_to_right/1, Characters).

%% RFC 3454, tables C.1.2 (spaces become a space) and B.1 (nothing is left).
map(C) when C =:= 16#a0; C =:= 16#1680; C >= 16#2000, C =< 16#200b; C =:= 16#202f;
            C =:= 16#205f; C =:= 16#3000 -> " ";
map(C) when C =:= 16#ad; C =:= 16#34f; C =:= 16#1806; C >= 16#180b, C =< 16#180d;
            C >= 16#200c, C =< 16#200d; C =:= 16#2060; C >= 16#fe00, C =< 16#fe0f;
            C =:= 16#feff -> "";
map(C) -> [C].

%% Tables C.2.1, C.2.2, C.3, C.4, C.5, C.6, C.7, C.8, C.9.
prohibited(C) when C < 16#20; C >= 16#7f, C =< 16#9f -> true;
prohibited(C) when C =:= 16#6dd; C =:= 16#70f; C =:= 16#180e -> true;
prohibited(C) when C =:= 16#340; C =:= 16#341; C >= 16#200c, C =< 16#200f -> true;
prohibited(C) when C >= 16#2028, C =< 16#202e; C >= 16#2060, C =< 16#2063 -> true;
prohibited(C) when C >= 16#206a, C =< 16#206f; C >= 16#2ff0, C =< 16#2ffb -> true;
prohibited(C) when C >= 16#d800, C =< 16#f8ff; C >= 16#fdd0, C =< 16#fdef -> true;
prohibited(C) when C =:= 16#feff; C >= 16#fff9, C =< 16#ffff -> true;
prohibited(C) when C >= 16#1d173, C =< 16#1d17a; C >= 16#e0001, C =< 16#e007f -> true;
prohibited(C) when C >= 16#f0000 -> true;
prohibited(C) -> C band 16#fffe =:= 16#fffe.
