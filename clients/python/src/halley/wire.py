"""From bytes to messages: server-sent events, NDJSON, lifetimes of tokens, refusals.

No I/O. A message that was cut off is ignored: its cursor isn't used either, so it comes again.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .reading import loads
from .types import HalleyError, Loss, Presence

Message = dict[str, Any]
#: A line longer than this is none of Halley's: its events have 64 KiB unless told otherwise.
LINE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Retry:
    """What the server asks to be waited after this connection."""

    seconds: float


Signal = Message | Retry | Loss


class Lines:
    """Cuts what comes into lines; each is complete."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[str]:
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > LINE_BYTES_MAX:
                raise ValueError("a line without an end")
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        return [line.removesuffix(b"\r").decode() for line in lines]


class Ndjson:
    """http.md 7.4: an empty line is a heartbeat."""

    def __init__(self) -> None:
        self._lines = Lines()

    def feed(self, data: bytes) -> list[Signal]:
        return [parse(line) if line else {} for line in self._lines.feed(data)]


class Sse:
    """http.md 7.3, and 13.2: `: busy` with a `retry:` is a whole answer."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[str] = []
        self._id: str | None = None
        self._is_busy = False

    def feed(self, data: bytes) -> list[Signal]:
        signals: list[Signal] = []
        for line in self._lines.feed(data):
            signal = self._line(line)
            if signal is not None:
                signals.append(signal)
        return signals

    def _line(self, line: str) -> Signal | None:
        if line == "":
            return self._end()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "":
            self._is_busy = self._is_busy or value == "busy"
        elif name == "retry" and value.isdecimal():
            seconds = int(value) / 1_000
            return Loss("busy", retry_after=seconds) if self._is_busy else Retry(seconds)
        elif name == "id":
            self._id = value
        elif name == "data":
            self._data.append(value)
        return None

    def _end(self) -> Signal | None:
        if self._is_busy:
            return None
        # What kind of event it is stands in the data too: `gap` and `end` are members of it.
        message = parse("\n".join(self._data)) if self._data else {}
        if self._id:
            message["cursor"] = self._id
        self._data, self._id = [], None
        return message


def parse(text: str) -> Message:
    """One message; ValueError for what is none."""
    message = loads(text)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


def presence_of(told: Mapping[str, Any]) -> Presence:
    """http.md 22.7, 23.4."""
    users = told.get("users")
    return Presence(str(told["subject"]), told.get("online"),
                    None if users is None else tuple(users), told.get("user"), told.get("state"),
                    told.get("data"), told.get("states", {}))


def names_of(ended: Mapping[str, Any]) -> list[tuple[str, str]]:
    """http.md 21.9: what has ended, each by the member of an operation that named it."""
    return [(member, subject)
            for name, member in (("subjects", "subject"), ("presence", "presence"))
            for subject in ended.get(name, ())]


def _claims(token: str) -> Any:
    """ValueError for what has none that can be read; it checks nothing."""
    _, part, *_ = token.split(".")
    return loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode())


def user_of(token: str) -> str | None:
    """Whose token it says it is."""
    try:
        user = _claims(token).get("sub")
    except (ValueError, AttributeError):
        return None
    return user if isinstance(user, str) else None


def lifetime_of(token: str, now: float) -> float | None:
    """The seconds for which a token just received is good, as far as it says so; it checks nothing.

    A clock that is behind is noticed by `iat`; one that is ahead leaves no time, so a minute is
    taken. None: it doesn't say.
    """
    try:
        claims = _claims(token)
        expires = float(claims["exp"])
        left = expires - now
        if isinstance(claims.get("iat"), (int, float)):
            left = min(left, expires - claims["iat"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return left if left > 0 else 60.0


def seconds_of(header: str | None) -> float | None:
    """`Retry-After`; what is no number of seconds, such as a date, counts as one second."""
    if header is None:
        return None
    return float(header) if header.strip().isdecimal() else 1.0


def refusal(status: int, headers: Mapping[str, str], body: str) -> HalleyError:
    """The error of an answer; without Halley's JSON it is somebody else's: `http`."""
    after = seconds_of(headers.get("Retry-After"))
    try:
        error = parse(body)["error"]
        return HalleyError(str(error["code"]), str(error.get("message", "")), status, after)
    except (ValueError, KeyError, TypeError):
        text = f"an answer with status {status} that isn't Halley's"
        return HalleyError("http", text, status, after)


#: An upgrade that a proxy took out of the request.
NO_UPGRADE = (405, 426)


def loss_of(error: HalleyError) -> Loss:
    """Why no stream was opened. Other people's errors are a broken way; theirs of 5xx may pass."""
    assert error.status is not None
    broken = (error.code == "http" and error.status < 500) or error.status in NO_UPGRADE
    return Loss(error.code, error.message, error.status, error.retry_after, broken=broken)
