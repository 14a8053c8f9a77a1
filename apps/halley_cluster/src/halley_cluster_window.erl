%% The tokens of the proposals in the newest rows: is a proposal in the log already?
%%
%% A brain that gets no answer proposes again, perhaps to another orderer, so each appender must
%% know which proposals the log has. It can't know all of them for ever; it needn't, by two rules:
%%
%% - Whoever proposes says up to which seq it has looked (`Base'): its own head at the time of
%%   sending. It applies each row and looks for its own tokens in it, so a proposal that it still
%%   sends is in a row after `Base', or in none.
%% - The window has the tokens of all rows after its `floor'. So if `Base' is at least the floor,
%%   what isn't in the window isn't in the log. Otherwise the answer is `stale', and the proposer
%%   sends it again with its next head.
%%
%% So nothing falls out of the window unnoticed, however small it is: its bound decides only how
%% many rows a brain may lack and still propose.
%%
%% Pure.
-module(halley_cluster_window).

-export([new/2, add/3, find/3, size/1]).
-export_type([window/0]).

-record(window, {
    max :: pos_integer(),
    floor :: halley_cursor:seq(),
    rows = queue:new() :: queue:queue({Last :: halley_cursor:seq(), [halley_log_engine:token()]}),
    tokens = #{} :: #{halley_log_engine:token() => true}
}).
-opaque window() :: #window{}.

%% Knows nothing of the rows up to this seq. `Max' bounds its tokens.
-spec new(Max :: pos_integer(), halley_cursor:seq()) -> window().
new(Max, Head) ->
    #window{max = Max, floor = Head}.

%% A row, the next of the chain.
-spec add(Last :: halley_cursor:seq(), [halley_log_engine:token()], window()) -> window().
add(_, [], Window) ->
    Window;
add(Last, Tokens, #window{rows = Rows, tokens = Known} = Window) ->
    %% A part of the row's body would keep all of it in memory.
    Copies = [binary:copy(Token) || Token <- Tokens],
    trim(Window#window{rows = queue:in({Last, Copies}, Rows),
                       tokens = maps:merge(Known, maps:from_keys(Copies, true))}).

trim(#window{max = Max, tokens = Known, rows = Rows} = Window) when map_size(Known) > Max ->
    {{value, {Last, Tokens}}, Rest} = queue:out(Rows),
    trim(Window#window{floor = Last, rows = Rest, tokens = maps:without(Tokens, Known)});
trim(Window) ->
    Window.

%% Is this proposal, which is in no row up to `Base', in a row that this brain has applied?
-spec find(halley_log_engine:token(), Base :: halley_cursor:seq(), window()) ->
    present | absent | stale.
find(Token, Base, #window{floor = Floor, tokens = Known}) ->
    case is_map_key(Token, Known) of
        true -> present;
        false when Base >= Floor -> absent;
        false -> stale
    end.

%% How many tokens it has.
-spec size(window()) -> non_neg_integer().
size(#window{tokens = Known}) -> map_size(Known).
