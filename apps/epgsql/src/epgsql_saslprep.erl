%% SASLprep of passwords, RFC 4013, as PostgreSQL does it: a password that isn't UTF-8, or has a
%% prohibited character, is used as it is.
%%
%% Pure. Unassigned code points and the rule on text in two directions (RFC 3454, 6) aren't looked
%% at: such a password is normalized here where PostgreSQL leaves it alone, which differs only if
%% normalizing changes it.
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
            case unicode:characters_to_nfkc_list(lists:append([map(C) || C <- Characters])) of
                [] -> Bytes;
                Normal when is_list(Normal) ->
                    case lists:any(fun prohibited/1, Normal) of
                        true -> Bytes;
                        false -> unicode:characters_to_binary(Normal)
                    end;
                _ -> Bytes
            end;
        _ -> Bytes
    end.

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
