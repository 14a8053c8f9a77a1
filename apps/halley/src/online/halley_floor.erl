%% A seq in a word of `atomics' that only rises, whoever writes it at once: the floor of
%% `halley_user_rows'.
-module(halley_floor).

-export([raise/3]).

%% To this seq, unless it is there or above. The usual case, that it is, costs one read.
-spec raise(atomics:atomics_ref(), Word :: pos_integer(), halley_cursor:seq()) -> ok.
raise(Ref, Word, Seq) -> raise(Ref, Word, Seq, atomics:get(Ref, Word)).

raise(_, _, Seq, Floor) when Floor >= Seq -> ok;
raise(Ref, Word, Seq, Floor) ->
    case atomics:compare_exchange(Ref, Word, Floor, Seq) of
        ok -> ok;
        Now -> raise(Ref, Word, Seq, Now)
    end.
