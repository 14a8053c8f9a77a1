%% Reads halley.conf: lines `key = value', and comments that begin with a `#'.
%%
%% Cuttlefish parses the file. This module first refuses lines that Cuttlefish would understand in
%% another way than their author: a value with a `#' in it, which Cuttlefish cuts off there, and
%% `include', which it skips without a word if the file is missing. It also refuses a key without a
%% value, and reports keys that several lines set: Cuttlefish takes the last line, and a person may
%% mean the first.
-module(halley_config_file).

-export([read/1]).

-type pairs() :: [{Key :: string(), Value :: string()}].

%% All keys of the file, known or not, and those that several lines set. The error has a sentence
%% for each mistake.
-spec read(file:filename()) ->
    {ok, pairs(), SetTwice :: [string()]} | {error, [Line :: string()]}.
read(File) ->
    try
        case [io_lib:format("~ts: line ~b: ~ts", [File, Number, What])
              || {Number, Line} <- lists:enumerate(string:split(text(File), "\n", all)),
                 What <- [wrong(string:trim(Line))], What =/= none] of
            [] -> {ok, pairs(File), set_twice(File)};
            Lines -> throw({wrong, Lines})
        end
    catch
        throw:{wrong, Wrong} -> {error, [lists:flatten(Line) || Line <- Wrong]}
    end.

text(File) ->
    case file:read_file(File) of
        {ok, <<16#EF, 16#BB, 16#BF, _/binary>>} ->
            wrong("~ts: begins with a byte order mark; save it as UTF-8 without one", [File]);
        {ok, Bytes} ->
            case unicode:characters_to_list(Bytes) of
                Text when is_list(Text) -> Text;
                _ -> wrong("~ts: is not UTF-8 text", [File])
            end;
        {error, Reason} ->
            wrong("~ts: cannot be read: ~ts", [File, file:format_error(Reason)])
    end.

-spec wrong(io:format(), [term()]) -> no_return().
wrong(Format, Args) ->
    throw({wrong, [io_lib:format(Format, Args)]}).

wrong("include " ++ _) ->
    "include isn't known; there is one file";
wrong(Line) ->
    case re:run(Line, "^([^#=\\s]+)\\s*=\\s*(.*)$", [unicode, {capture, all_but_first, list}]) of
        {match, [Key, Rest]} -> wrong_value(Key, Rest);
        nomatch -> none
    end.

wrong_value(Key, Rest) ->
    [Before | Comment] = string:split(Rest, "#"),
    case {string:trim(Before), Comment} of
        {"", _} ->
            [Key, " has no value; write one, or make the line a comment"];
        {Before, [_]} ->
            ["the # would end the value of ", Key, "; put a space before a comment; a value with a "
             "# can be set in the environment"];
        _ ->
            none
    end.

pairs(File) ->
    try cuttlefish_conf:file(File) of
        {errorlist, [{error, {conf_syntax, {_, {Line, _}}}} | _]} ->
            wrong("~ts: line ~b is not of the form key = value", [File, Line]);
        {errorlist, [{error, Reason} | _]} ->
            wrong("~ts: ~ts", [File, cuttlefish_error:xlate(Reason)]);
        Pairs ->
            [{dotted(Variable), Value} || {Variable, Value} <- Pairs]
    catch
        throw:{unable_to_open, Named, Cause} ->
            wrong("~ts: cannot be read: ~ts", [Named, file:format_error(Cause)])
    end.

set_twice(File) ->
    Set = [dotted(Variable) || {Variable, _} <- conf_parse:file(File)],
    lists:usort(Set -- lists:usort(Set)).

dotted(Variable) ->
    lists:flatten(lists:join(".", Variable)).
