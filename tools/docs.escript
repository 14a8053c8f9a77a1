#!/usr/bin/env escript
%% Writes what is made from tables in the code: halley.conf.example, docs/reference/, and the edge's
%% part of the table of resources.
%%
%%   tools/docs.escript <directory of the built libraries> write | check
%%
%% `check' writes nothing and fails when a file is not what the code says now.
-mode(compile).

main([Libraries, Mode]) when Mode =:= "write"; Mode =:= "check" ->
    ok = code:add_pathsa(filelib:wildcard(filename:join(Libraries, "*/ebin"))),
    Stale = [Path || {Path, Text} <- pages(),
                     is_stale(Mode, Path, unicode:characters_to_binary(Text))],
    case Stale of
        [] ->
            ok;
        _ ->
            io:format(standard_error, "not what the code says; run `make docs`: ~ts~n",
                      [lists:join(" ", Stale)]),
            halt(1)
    end;
main(_) ->
    io:format(standard_error, "usage: tools/docs.escript <libraries> write|check~n", []),
    halt(2).

is_stale("write", Path, Text) ->
    ok = filelib:ensure_dir(Path),
    ok = file:write_file(Path, Text),
    false;
is_stale("check", Path, Text) ->
    file:read_file(Path) =/= {ok, Text}.

pages() ->
    Keys = halley_config:keys(),
    [{"halley.conf.example", example(Keys)},
     {"docs/reference/configuration.md", configuration(Keys)},
     {"docs/reference/metrics.md", metrics()},
     {"edge/halley-edge/src/http/routes.rs", routes()}].

example(Keys) ->
    ["# Halley's configuration: copy to halley.conf. A line says the default, if there is one.\n"
     "# The environment goes before this file: public.listen is HALLEY_PUBLIC_LISTEN.\n",
     [["\n", [["# ", Line, "\n"] || Line <- lines(Doc)],
       "# ", string:trim([Key, " = ", default(Key, Default)], trailing), "\n"]
      || #{key := Key, default := Default, doc := Doc} <- Keys]].

configuration(Keys) ->
    ["# Configuration\n\n"
     "Made from the applications' `priv/*.schema` and from `halley_limits` by `make docs`.\n\n"
     "One file, `halley.conf` in the working directory or `$HALLEY_CONF`, with `key = value` on a "
     "line.\nThe environment goes before the file. An unknown key or a bad value: one line on "
     "stderr that names the\nkey, and exit 1.\n\n"
     "A `#` after a space begins a comment. Values stand without quotes. Relative paths begin at "
     "the working\ndirectory. A duration is such as `500ms`, `25s`, `10m` or `1h30m`, a number of "
     "bytes such as `500MB` or\n`4GB`; `limits.*` have no unit. "
     "[Rules worth knowing](../guides/rules.md) says more.\n\n"
     "| key | environment | default | meaning |\n| --- | --- | --- | --- |\n",
     [["| `", Key, "` | `", Variable, "` | ", code(default(Key, Default)), " | ",
       lists:join(" ", lines(Doc)), " |\n"]
      || #{key := Key, variable := Variable, default := Default, doc := Doc} <- Keys]].

metrics() ->
    ["# Metrics\n\nMade from `halley_metrics` and `edge/halley-edge/src/stats.rs` by `make docs`. "
     "`GET /metrics` on the\nAPI listener gives them as Prometheus text; those of the edge have a "
     "label for each worker.\n\n"
     "| name | kind | meaning |\n| --- | --- | --- |\n",
     [["| `", Metric, "` | ", atom_to_list(Kind), " | ", Help, " |\n"]
      || {_, Metric, Kind, Help} <- halley_metrics:table()],
     [["| `halley_edge_", Name, "` | ", Kind, " | ", Help, " |\n"]
      || [Kind, Name, Help] <- edge_table()]].

%% What the edge must know of the resources: it answers preflights, verifies users, and sends the
%% headers that the brain reads.
routes() ->
    Routes = halley_api:routes(),
    Api = [Methods || {api, _, _, _, Methods, _} <- Routes],
    Me = [Methods || {public, [<<"v1">>, <<"me">> | _], _, _, Methods, _} <- Routes],
    [Status] = [Path || {api, Path, halley_api_status_h, [<<"stream">>], _, _} <- Routes],
    ["//! The edge's part of the table of resources. Made from `halley_api:routes/0` and\n"
     "//! `halley_api:headers/1` by `make docs`: a change belongs there.\n\n"
     "/// Headers of a request at the public listener that the brain reads (link.md 8.2).\n"
     "pub const PUBLIC_HEADERS: &[&str] = &[", quoted(halley_api:headers(public)), "];\n"
     "/// Those of a request at the API's.\n"
     "pub const API_HEADERS: &[&str] =\n    &[", quoted(halley_api:headers(api)), "];\n"
     "/// Methods of the API's listener.\n"
     "pub const API_METHODS: &str = \"", halley_api:allow(lists:append(Api)), "\";\n"
     "/// Methods of what users do themselves.\n"
     "pub const ME_METHODS: &str = \"", halley_api:allow(lists:append(Me)), "\";\n"
     "/// The stream of the API's listener.\n"
     "pub const STATUS_STREAM: &str = \"", [["/", Segment] || Segment <- Status], "\";\n"].

quoted(Names) ->
    lists:join(", ", [[$", Name, $"] || Name <- Names]).

%% Rows such as `Full counter "refused_total" "Connections refused.";'
edge_table() ->
    {ok, Source} = file:read_file("edge/halley-edge/src/stats.rs"),
    {match, Rows} = re:run(Source, "^    [A-Z]\\w* (counter|gauge)\\s+\"(\\w+)\"\\s+\"([^\"]*)\";",
                           [global, multiline, {capture, all_but_first, list}]),
    Rows.

%% A schema's comment comes as one string a line, or with line ends inside.
lines(Doc) ->
    [string:trim(quotes(Line)) || Text <- Doc, Line <- string:split(Text, "\n", all)].

%% The schema quotes as Erlang's documentation does, `so'.
quotes(Text) ->
    re:replace(Text, "`([^`']*)'", "`\\1`", [global, {return, list}, unicode]).

default(Key, Value) ->
    case lists:member(Key, without_default()) of
        true -> "";
        false -> lists:flatten(io_lib:format(format(Value), [Value]))
    end.

format(Value) when is_list(Value) -> "~ts";
format(_) -> "~tp".

%% The list of keys says `none' both for these and for a key whose default is that word.
without_default() ->
    {_, Mappings, _} = cuttlefish_schema:files(filelib:wildcard("apps/*/priv/*.schema")),
    [lists:flatten(lists:join(".", cuttlefish_mapping:variable(Mapping)))
     || Mapping <- Mappings, not cuttlefish_mapping:has_default(Mapping)].

code("") -> "";
code(Text) -> ["`", Text, "`"].
