%% Cuts a list or tuple in the external term format into its elements, without making terms of them:
%% for frames in which one element can't be read. The tags are those that `term_to_iovec' of OTP 25
%% to 27 writes; anything else is malformed.
%%
%% It walks on a stack of its own, so that deep terms cost memory in proportion to their bytes.
-module(teleport_etf).

-export([elements/1]).

%% Without the leading version byte; what is behind the term comes back.
-spec elements(binary()) -> {ok, [binary()], Rest :: binary()} | error.
elements(<<108, Count:32, Bin/binary>>) when Count =< byte_size(Bin) ->
    case cut(Count, Bin, []) of
        {ok, Parts, <<106, Rest/binary>>} -> {ok, Parts, Rest};
        _ -> error
    end;
elements(<<106, Rest/binary>>) -> {ok, [], Rest};
elements(<<104, Count, Bin/binary>>) -> cut(Count, Bin, []);
elements(<<105, Count:32, Bin/binary>>) when Count =< byte_size(Bin) -> cut(Count, Bin, []);
elements(_) -> error.

cut(0, Bin, Parts) -> {ok, lists:reverse(Parts), Bin};
cut(N, Bin, Parts) ->
    case skip(1, Bin) of
        {ok, Rest} ->
            Bytes = byte_size(Bin) - byte_size(Rest),
            cut(N - 1, Rest, [binary:part(Bin, 0, Bytes) | Parts]);
        error ->
            error
    end.

%% Skips so many terms.
skip(0, Bin) -> {ok, Bin};
skip(N, <<Tag, Bin/binary>>) ->
    case size_of(Tag, Bin) of
        {Bytes, Terms} ->
            case Bin of
                <<_:Bytes/binary, Rest/binary>> when Terms =< byte_size(Rest) ->
                    skip(N - 1 + Terms, Rest);
                _ -> error
            end;
        error -> error
    end;
skip(_, <<>>) -> error.

%% How many bytes belong to the tag, and how many terms follow them.
size_of(97, _) -> {1, 0};                                   % small integer
size_of(98, _) -> {4, 0};                                   % integer
size_of(70, _) -> {8, 0};                                   % float
size_of(100, <<L:16, _/binary>>) -> {2 + L, 0};             % atom, Latin-1
size_of(115, <<L, _/binary>>) -> {1 + L, 0};
size_of(118, <<L:16, _/binary>>) -> {2 + L, 0};             % atom, UTF-8
size_of(119, <<L, _/binary>>) -> {1 + L, 0};
size_of(88, Bin) -> named(Bin, 12);                         % pid
size_of(89, Bin) -> named(Bin, 8);                          % port
size_of(120, Bin) -> named(Bin, 12);
size_of(90, <<N:16, Bin/binary>>) -> behind(2, named(Bin, 4 + 4 * N));    % reference
size_of(104, <<N, _/binary>>) -> {1, N};                    % tuple
size_of(105, <<N:32, _/binary>>) -> {4, N};
size_of(106, _) -> {0, 0};                                  % []
size_of(107, <<L:16, _/binary>>) -> {2 + L, 0};             % string
size_of(108, <<N:32, _/binary>>) -> {4, N + 1};             % list and its tail
size_of(109, <<L:32, _/binary>>) -> {4 + L, 0};             % binary
size_of(77, <<L:32, _/binary>>) -> {5 + L, 0};              % bitstring
size_of(110, <<L, _/binary>>) -> {2 + L, 0};                % big integer
size_of(111, <<L:32, _/binary>>) -> {5 + L, 0};
size_of(116, <<N:32, _/binary>>) -> {4, 2 * N};             % map
size_of(112, <<L:32, _/binary>>) when L >= 4 -> {L, 0};     % fun
size_of(113, _) -> {0, 3};                                  % external fun
size_of(_, _) -> error.

%% The node's name, then so many bytes.
named(<<Tag, Bin/binary>>, Bytes) when Tag =:= 100; Tag =:= 115; Tag =:= 118; Tag =:= 119 ->
    behind(1 + Bytes, size_of(Tag, Bin));
named(_, _) -> error.

behind(Bytes, {More, 0}) -> {Bytes + More, 0};
behind(_, _) -> error.
