"""JSON as Halley passes it on: reads any JSON that a server or a user could publish.

Python's own reader fails at some thousands of digits and at deep nesting, and reads numbers that no
float holds as infinity. Such numbers are `decimal.Decimal` here; values nested deeper than Python
recurses are read by a loop. Text that isn't JSON is a ValueError. No I/O.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Any

SPACE = re.compile(r"[ \t\n\r]*")
CLOSES: dict[type, str] = {list: "]", dict: "}"}


def loads(text: str) -> Any:
    try:
        return PLAIN.decode(text)
    except RecursionError:
        return _deep(text)
    except ValueError:
        return _long(text)


def _long(text: str) -> Any:
    """With numbers that have more digits than an int is made of."""
    try:
        return EXACT.decode(text)
    except RecursionError:
        return _deep(text)


def _deep(text: str) -> Any:
    whole: list[Any] = []
    #: What is open, from the outermost on.
    stack: list[Any] = [whole]
    key, at = "", _skip(text, 0)
    while True:
        value: Any
        if text[at:at + 1] in ("[", "{"):
            value = [] if text[at] == "[" else {}
            at = _skip(text, at + 1)
        else:
            value, at = EXACT.raw_decode(text, at)
        _put(stack[-1], key, value)
        if type(value) in CLOSES:
            stack.append(value)
            if not text.startswith(CLOSES[type(value)], at):
                key, at = _key(text, at, value)
                continue
        at = _skip(text, at)
        while len(stack) > 1 and text.startswith(CLOSES[type(stack[-1])], at):
            stack.pop()
            at = _skip(text, at + 1)
        if len(stack) == 1:
            break
        if not text.startswith(",", at):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        key, at = _key(text, _skip(text, at + 1), stack[-1])
    if at != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return whole[0]


def _skip(text: str, at: int) -> int:
    space = SPACE.match(text, at)
    return space.end() if space else at


def _put(into: Any, key: str, value: Any) -> None:
    if isinstance(into, list):
        into.append(value)
    else:
        into[key] = value


def _key(text: str, at: int, into: Any) -> tuple[str, int]:
    """That of the next value, and where that begins; a list has none."""
    if isinstance(into, list):
        return "", at
    if not text.startswith('"', at):
        raise json.JSONDecodeError("Expecting a name in quotes", text, at)
    key, at = EXACT.raw_decode(text, at)
    at = _skip(text, at)
    if not text.startswith(":", at):
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return key, _skip(text, at + 1)


def _whole(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:  # sys.set_int_max_str_digits: it would take quadratic time
        return Decimal(text)


def _real(text: str) -> float | Decimal:
    number = float(text)
    if not isinf(number):
        return number
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits
        return number


PLAIN = json.JSONDecoder(parse_float=_real)
EXACT = json.JSONDecoder(parse_float=_real, parse_int=_whole)
