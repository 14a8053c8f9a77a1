%% A small file that another program writes and that is read again when it changes.
%%
%% `read/3' is called again and again. It reads the file's inode, size and times, and reads the file
%% only when these differ from what was seen last, or when the file was changed so recently that a
%% second change would have the same times, which count in seconds here. Two readings are compared
%% by a digest, so that the memory of a file has nothing of its content.
%%
%% An error is returned once, like a change. It is no process: callers call when they want to know.
-module(halley_watched).

-include_lib("kernel/include/file.hrl").

-export([never/0, read/3, look/4, explain/1]).
-export_type([seen/0, reason/0]).

-type signature() :: {Inode :: term(), Size :: term(), Modified :: term(), Changed :: term()}.
-opaque seen() :: never | {error, reason()}
                | {read, signature(), IsSettled :: boolean(), Digest :: binary()}.
-type reason() :: file:posix() | badarg | terminated | system_limit | too_large | not_a_file.

%% A change in the second of the last one, or the one after it, could go unseen.
-define(SETTLED_S, 2).

-spec never() -> seen().
never() ->
    never.

%% `BytesMax': a file that is longer is an error, and is not read.
-spec read(file:filename_all(), BytesMax :: pos_integer(), seen()) ->
    {unchanged, seen()} | {changed, binary(), seen()} | {error, reason(), seen()}.
read(Path, BytesMax, Seen) ->
    case file:read_file_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{type = regular, size = Size}} when Size > BytesMax ->
            failed(too_large, Seen);
        {ok, #file_info{type = regular} = Info} ->
            read_changed(Path, Info, Seen);
        {ok, _} ->
            failed(not_a_file, Seen);
        {error, Reason} ->
            failed(Reason, Seen)
    end.

%% The same for a caller that asks again and again: `News' is called with what is new, if anything.
-spec look(file:filename_all(), BytesMax :: pos_integer(), seen(),
           News :: fun(({changed, binary()} | {error, reason()}) -> term())) -> seen().
look(Path, BytesMax, Seen, News) ->
    case read(Path, BytesMax, Seen) of
        {unchanged, Now} ->
            Now;
        {Kind, What, Now} ->
            _ = News({Kind, What}),
            Now
    end.

%% Whether it is settled is asked before it is read: no change of that second can come behind that.
read_changed(Path, Info, Seen) ->
    Signature = signature(Info),
    case Seen of
        {read, Signature, true, _} ->
            {unchanged, Seen};
        _ ->
            IsSettled = is_settled(Info),
            contents(file:read_file(Path), Signature, IsSettled, Seen)
    end.

contents({ok, Bytes}, Signature, IsSettled, Seen) ->
    Digest = crypto:hash(sha256, Bytes),
    Now = {read, Signature, IsSettled, Digest},
    case Seen of
        {read, _, _, Digest} -> {unchanged, Now};
        _ -> {changed, Bytes, Now}
    end;
contents({error, Reason}, _, _, Seen) ->
    failed(Reason, Seen).

failed(Reason, {error, Reason} = Seen) -> {unchanged, Seen};
failed(Reason, _) -> {error, Reason, {error, Reason}}.

signature(#file_info{inode = Inode, size = Size, mtime = Modified, ctime = Changed}) ->
    {Inode, Size, Modified, Changed}.

is_settled(#file_info{mtime = Modified, ctime = Changed}) ->
    halley_clock:wall_s() - max(Modified, Changed) > ?SETTLED_S.

-spec explain(reason()) -> iodata().
explain(too_large) -> "it is larger than such a file may be";
explain(not_a_file) -> "it is not a regular file";
explain(Reason) -> file:format_error(Reason).
