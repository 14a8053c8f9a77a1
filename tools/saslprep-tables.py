#!/usr/bin/env python3
"""Writes apps/epgsql/src/epgsql_saslprep_tables.erl from the tables of RFC 3454 in Python's module
`stringprep`. They are those of Unicode 3.2 for good, so this need not run again."""

import pathlib
import stringprep

HEADER = """\
%% Which code points are unassigned, and which direction they have, by tables A.1, D.1 and D.2 of
%% RFC 3454: those of Unicode 3.2 for good. Written by tools/saslprep-tables.py. Pure.
-module(epgsql_saslprep_tables).

-export([is_unassigned/1, is_right_to_left/1, is_left_to_right/1]).

-type table() :: tuple().

-spec is_unassigned(char()) -> boolean().
is_unassigned(C) -> is_in(C, unassigned()).

-spec is_right_to_left(char()) -> boolean().
is_right_to_left(C) -> is_in(C, right_to_left()).

-spec is_left_to_right(char()) -> boolean().
is_left_to_right(C) -> is_in(C, left_to_right()).

-spec is_in(char(), table()) -> boolean().
is_in(C, Ranges) -> is_in(C, Ranges, 1, tuple_size(Ranges)).

is_in(_, _, Low, High) when Low > High -> false;
is_in(C, Ranges, Low, High) ->
    Middle = (Low + High) div 2,
    case element(Middle, Ranges) of
        {First, _} when C < First -> is_in(C, Ranges, Low, Middle - 1);
        {_, Last} when C > Last -> is_in(C, Ranges, Middle + 1, High);
        _ -> true
    end.
"""


def ranges(is_in):
    found, first = [], None
    for code in range(0x110001):
        if code < 0x110000 and is_in(chr(code)):
            first = code if first is None else first
        elif first is not None:
            found.append(f"{{{first},{code - 1}}}")
            first = None
    return found


def function(name, is_in):
    lines, line = [], "  {"
    for text in ranges(is_in):
        if len(line) + len(text) > 99:
            lines.append(line)
            line = "   "
        line += text + ","
    return f"\n{name}() ->\n" + "\n".join([*lines, line[:-1] + "}."]) + "\n"


TARGET = pathlib.Path(__file__).parent.parent / "apps/epgsql/src/epgsql_saslprep_tables.erl"
TARGET.write_text(HEADER + function("unassigned", stringprep.in_table_a1)
                  + function("right_to_left", stringprep.in_table_d1)
                  + function("left_to_right", stringprep.in_table_d2))
