%% The proposals of this brain's own callers, from the request to the answer.
%%
%% A proposal is *open* from when it is requested until its answer, and has exactly one answer:
%% - `{ok, _}', when this brain has applied its row and the row is safe (`halley_cluster_reader');
%% - `{error, {overloaded, _}}' at once, if too much waits already. Nothing was done;
%% - `{error, {log_away, _}}', if the log can't be reached, and nothing was done;
%% - `{error, {log_unknown, _}}', if it isn't known in time whether the log has it, or will. An
%%   event with a chosen id can be published again. An HTTP layer answers the three errors with 503
%%   and `Retry-After'.
%%
%% A proposal is *placed* when its row is applied. Until then it is sent to the orderer, or waits in
%% this brain's own queue. It relies on no other brain's memory: it is sent again to each new
%% orderer, and after a silence. Proposals are sent in the order in which they came, which is that
%% of their tokens.
%%
%% Pure.
-module(halley_cluster_proposals).

-export([new/1, add/5, place/3, safe/2, expire/3, lost/2, unseen/1, info/1]).
-export([unplaced/1, due/2, sent/3, again/3, fresh/1, exposed/2, oldest_sent/1]).
-export_type([proposals/0, answer/0, placed/0, from/0]).

-record(open, {
    from :: from(),
    proposal :: halley_cluster_records:proposal(),
    since :: integer(),
    exposed = false :: boolean(),             % whether a row may have it
    sent = none :: none | integer(),          % when this orderer got it first
    due = 0 :: integer(),                     % when it may be sent again
    placed = none :: none | placed()
}).
-record(proposals, {
    bounds :: #{records := pos_integer(), bytes := pos_integer()},
    open = #{} :: #{halley_log_engine:token() => #open{}},
    placed = [] :: [{Last :: halley_cursor:seq(), halley_log_engine:token()}],
    records = 0 :: non_neg_integer(),
    bytes = 0 :: non_neg_integer()
}).
-opaque proposals() :: #proposals{}.
%% What the shell finds the waiting caller by.
-type from() :: term().
%% `before': the last seq before its records. `at', `last': the time and the last seq of the row.
%% The whole row has to be safe, as a proposal without events has no seq of its own.
-type placed() :: #{before := halley_cursor:seq(), at := halley_log_engine:at_ms(),
                    records := [halley_cluster_records:record()], last := halley_cursor:seq()}.
-type answer() :: {ok, placed()}
                | {error, {overloaded | log_away | log_unknown, RetryAfterMs :: pos_integer()}}.

-define(RETRY_AFTER_MS, 1000).

-spec new(#{records := pos_integer(), bytes := pos_integer()}) -> proposals().
new(Bounds) ->
    #proposals{bounds = Bounds}.

%% `overloaded': as many records or bytes wait as may.
-spec add(halley_log_engine:token(), from(), halley_cluster_records:proposal(), Now :: integer(),
          proposals()) -> {ok, proposals()} | {error, {overloaded, pos_integer()}}.
add(Token, From, Proposal, Now, #proposals{bounds = Bounds} = P) ->
    {Records, Bytes} = weight(Proposal),
    #{records := RecordsMax, bytes := BytesMax} = Bounds,
    case {P#proposals.records + Records, P#proposals.bytes + Bytes} of
        {AllRecords, AllBytes} when AllRecords =< RecordsMax, AllBytes =< BytesMax ->
            Open = #open{from = From, proposal = Proposal, since = Now},
            {ok, P#proposals{open = (P#proposals.open)#{Token => Open}, records = AllRecords,
                             bytes = AllBytes}};
        _ ->
            {error, {overloaded, ?RETRY_AFTER_MS}}
    end.

weight(#{count := Count, records := Bytes}) -> {Count, byte_size(Bytes)}.

%% A row that has it was applied.
-spec place(halley_log_engine:token(), placed(), proposals()) -> proposals().
place(Token, #{last := Last} = Placed, #proposals{open = Opens} = P) ->
    case Opens of
        #{Token := #open{placed = none} = Open} ->
            P#proposals{open = Opens#{Token := Open#open{placed = Placed}},
                        placed = [{Last, Token} | P#proposals.placed]};
        _ ->
            P
    end.

%% Answers those whose row is safe.
-spec safe(halley_cursor:seq(), proposals()) -> {proposals(), [{from(), answer()}]}.
safe(_, #proposals{placed = []} = P) ->
    {P, []};
safe(Safe, #proposals{placed = Placed} = P) ->
    {Ready, Waiting} = lists:partition(fun({Last, _}) -> Last =< Safe end, Placed),
    lists:foldl(fun({_, Token}, {Left, Answers}) ->
                    #open{placed = Place} = maps:get(Token, Left#proposals.open),
                    answer(Token, {ok, Place}, Left, Answers)
                end, {P#proposals{placed = Waiting}, []}, Ready).

answer(Token, Answer, #proposals{open = Opens} = P, Answers) ->
    {#open{from = From, proposal = Proposal}, Left} = maps:take(Token, Opens),
    {Records, Bytes} = weight(Proposal),
    {P#proposals{open = Left, records = P#proposals.records - Records,
                 bytes = P#proposals.bytes - Bytes,
                 placed = lists:keydelete(Token, 2, P#proposals.placed)},
     [{From, Answer} | Answers]}.

%% Answers those that have waited too long, and returns their tokens.
-spec expire(Now :: integer(), AfterMs :: pos_integer(), proposals()) ->
    {proposals(), [{from(), answer()}], [halley_log_engine:token()]}.
expire(Now, AfterMs, #proposals{open = Opens} = P) ->
    Late = [Token || {Token, #open{since = Since}} <- maps:to_list(Opens), Now - Since >= AfterMs],
    {Left, Answers} = give_up(Late, P),
    {Left, Answers, Late}.

give_up(Tokens, P) ->
    lists:foldl(fun(Token, {#proposals{open = Opens} = Left, Answers}) ->
                    Reason = case maps:get(Token, Opens) of
                        #open{exposed = true} -> log_unknown;
                        _ -> log_away
                    end,
                    answer(Token, {error, {Reason, ?RETRY_AFTER_MS}}, Left, Answers)
                end, {P, []}, Tokens).

%% Those that no applied row has, in order.
-spec unplaced(proposals()) ->
    [{halley_log_engine:token(), halley_cluster_records:proposal()}].
unplaced(#proposals{open = Opens}) ->
    lists:sort([{Token, Proposal}
                || {Token, #open{placed = none, proposal = Proposal}} <- maps:to_list(Opens)]).

%% Those of them that are to be sent now, and are marked as sent; next time in `AgainMs'.
-spec due({Now :: integer(), AgainMs :: pos_integer()}, proposals()) ->
    {[{halley_log_engine:token(), halley_cluster_records:proposal()}], proposals()}.
due({Now, _} = Resend, #proposals{open = Opens} = P) ->
    case [{Token, Proposal} || {Token, #open{placed = none, due = Due, proposal = Proposal}}
                                   <- maps:to_list(Opens), Due =< Now] of
        [] -> {[], P};
        Ready -> {lists:sort(Ready), sent([Token || {Token, _} <- Ready], Resend, P)}
    end.

-spec sent([halley_log_engine:token()], {Now :: integer(), AgainMs :: pos_integer()},
           proposals()) -> proposals().
sent(Tokens, {Now, AgainMs}, P) ->
    update(Tokens, fun(#open{sent = none} = Open) ->
                           Open#open{exposed = true, sent = Now, due = Now + AgainMs};
                      (Open) ->
                           Open#open{due = Now + AgainMs}
                   end, P).

%% The orderer refused them for now.
-spec again([halley_log_engine:token()], Due :: integer(), proposals()) -> proposals().
again(Tokens, Due, P) ->
    update(Tokens, fun(Open) -> Open#open{sent = none, due = Due} end, P).

%% There is another orderer, which has got none of them.
-spec fresh(proposals()) -> proposals().
fresh(#proposals{open = Opens} = P) ->
    P#proposals{open = maps:map(fun(_, Open) -> Open#open{sent = none, due = 0} end, Opens)}.

%% An append of this brain has them.
-spec exposed([halley_log_engine:token()], proposals()) -> proposals().
exposed(Tokens, P) ->
    update(Tokens, fun(Open) -> Open#open{exposed = true} end, P).

update(Tokens, Fun, #proposals{open = Opens} = P) ->
    P#proposals{open = lists:foldl(fun(Token, All) ->
                                       case All of
                                           #{Token := Open} -> All#{Token := Fun(Open)};
                                           _ -> All
                                       end
                                   end, Opens, Tokens)}.

%% The log has lost what is behind `After'. What was placed there isn't.
-spec lost(After :: halley_cursor:seq(), proposals()) -> proposals().
lost(After, #proposals{open = Opens, placed = Placed} = P) ->
    {Kept, Lost} = lists:partition(fun({Last, _}) -> Last =< After end, Placed),
    update([Token || {_, Token} <- Lost], fun(Open) -> Open#open{placed = none, due = 0} end,
           P#proposals{open = Opens, placed = Kept}).

%% This brain will never see some rows that may have what isn't placed: answers those.
-spec unseen(proposals()) -> {proposals(), [{from(), answer()}]}.
unseen(#proposals{open = Opens} = P) ->
    give_up([Token || {Token, #open{placed = none, exposed = true}} <- maps:to_list(Opens)], P).

%% Since when this orderer has had one that isn't placed.
-spec oldest_sent(proposals()) -> integer() | none.
oldest_sent(#proposals{open = Opens}) ->
    maps:fold(fun(_, #open{placed = none, sent = Sent}, Oldest) when is_integer(Sent) ->
                      min(Sent, Oldest);                % an atom is greater than any number
                 (_, _, Oldest) ->
                      Oldest
              end, none, Opens).

%% `unsafe': those that are placed, in rows that aren't safe yet.
-spec info(proposals()) -> #{open := non_neg_integer(), records := non_neg_integer(),
                             bytes := non_neg_integer(), unsafe := non_neg_integer()}.
info(#proposals{open = Opens, records = Records, bytes = Bytes, placed = Placed}) ->
    #{open => map_size(Opens), records => Records, bytes => Bytes, unsafe => length(Placed)}.
