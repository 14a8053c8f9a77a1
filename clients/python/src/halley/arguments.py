"""Checks of the arguments of each function. A wrong one is a TypeError or a ValueError at once, and
the message names the argument. Rules that only the server knows (which characters an id may have,
how long it may be) are left to the server.
"""

from __future__ import annotations

import inspect
import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit


def text(name: str, value: object) -> str:
    """A str that has a place in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} has half of a surrogate pair in it: {value!r}") from None
    return value


def text_or_none(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)


def texts(name: str, value: object) -> list[str]:
    """Of a list, tuple or the like; a str would be taken letter by letter."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is a list of str, not {_kind(value)}"
                        + (f": write [{value!r}]" if isinstance(value, str) else ""))
    return [text(f"each of {name}", one) for one in value]


def each(name: str, values: Sequence[object]) -> list[str]:
    """The arguments of `f(*values)`."""
    for value in values:
        if not isinstance(value, str) and isinstance(value, Iterable):
            raise TypeError(f"{name} are given one by one, not as {_kind(value)}: write *{name}")
    return [text(f"each of {name}", value) for value in values]


def pairs(values: Sequence[object]) -> list[tuple[str, str]]:
    made = []
    for value in values:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or len(value) != 2:
            raise TypeError(f"each pair is (user, subject), not {value!r}")
        made.append((text("a pair's user", value[0]), text("a pair's subject", value[1])))
    return made


def seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {_kind(value)}")
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} is a number of seconds above 0, not {value!r}")
    return float(value)


def count_or_none(name: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {_kind(value)}")
    if value < 1:
        raise ValueError(f"{name} is 1 or more, not {value}")
    return value


def function_or_none(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} is a function, not {_kind(value)}")
    if inspect.iscoroutinefunction(value):
        raise TypeError(f"{name} is a function that isn't async: nobody would wait for it")


def address(url: object) -> str:
    """Without a slash at its end."""
    parts = urlsplit(text("url", url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"url is http://HOST or https://HOST, with a port if need be, not {url!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"url ends before ? and #, not {url!r}")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"url has no good port: {error}") from None
    return parts.geturl().rstrip("/")


def context_or_none(value: object) -> ssl.SSLContext | None:
    if value is not None and not isinstance(value, ssl.SSLContext):
        raise TypeError("ssl is an ssl.SSLContext, such as ssl.create_default_context("
                        f"cafile='ca.pem'), not {_kind(value)}")
    return value


def json_of(name: str, data: object) -> str:
    """As JSON; what JSON has no word for, such as NaN, no server would take."""
    try:
        return json.dumps(data, allow_nan=False)
    except TypeError as error:
        raise TypeError(f"{name} can't be JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} can't be JSON: {error}") from None


def event(name: str, value: object) -> dict[str, Any]:
    """With members of the right kinds; whether they go together is the server's to say."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a dict with data and subject, subjects or to, "
                        f"not {_kind(value)}")
    if "data" not in value:
        raise ValueError(f"{name} has no data; None is data as well")
    if value.get("keep") not in (None, True, False):
        raise TypeError(f"keep of {name} is True or False, not {_kind(value['keep'])}")
    made = dict(value)
    for member in ("subject", "id", "ack"):
        text_or_none(f"{member} of {name}", value.get(member))
    for member in ("subjects", "to"):
        if value.get(member) is not None:
            made[member] = texts(f"{member} of {name}", value[member])
    return made


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
