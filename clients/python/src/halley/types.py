"""Types that the modules of the client share, and those that its users see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["connecting", "open", "reconnecting", "closed"]


@dataclass(frozen=True, slots=True)
class Event:
    """What somebody published about a subject, or about several `subjects`, or, where there is
    none, to this user and perhaps others alone; `at` is in milliseconds since 1970."""

    id: str
    subject: str | None
    at: int
    data: Any
    #: All that was seen up to this event. Who keeps it can go on behind it, in another process too.
    cursor: str | None = field(default=None, compare=False)
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Between these times (milliseconds since 1970, None: unknown) events may be missing."""

    start: int | None
    end: int | None
    reason: str
    cursor: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Presence:
    """Who is there (`users`, all of them: it replaces what was told before), or who has come or
    left, or says something else of itself (`user`, with `state`). `online` is how many; alone,
    where they aren't named."""

    subject: str
    online: int | None = None
    users: tuple[str, ...] | None = None
    user: str | None = None
    state: Literal["join", "leave", "update"] | None = None
    #: What `user` says of itself (`Client.say`), with a join or an update; None for nothing.
    data: Any = None
    #: With `users`: what those of them say that say something.
    states: Mapping[str, Any] = field(default_factory=dict)
    #: It is no event, and moves no cursor.
    cursor: None = field(default=None, compare=False)


Item = Event | Gap | Presence


@dataclass(frozen=True, slots=True)
class Published:
    """An event that was taken. `sessions` is told to servers alone."""

    id: str
    sessions: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Why there is no connection (any more)."""

    code: str
    message: str = ""
    #: Of an HTTP answer.
    status: int | None = None
    #: Seconds; the server has said when to come back.
    retry_after: float | None = None
    #: This transport doesn't work here; the next one may.
    broken: bool = False
    #: Nothing is wrong: the next connection may begin now.
    at_once: bool = False


class HalleyError(Exception):
    """A refusal of Halley's (`code` as in its HTTP API), or the client's own."""

    def __init__(
        self, code: str, message: str = "", status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after = retry_after
