"""The subjects a client is subscribed to, and how they change while connections come and go.

`subscribe`, `unsubscribe`, `watch` and `unwatch` return when the change holds: events published
from then on arrive. A change is a task of its own: a caller that stops waiting for it, by a
cancellation or a time-out, doesn't stop it. Changes of one subject happen in the order of the
calls, so the last one wins; those of different subjects don't wait for each other.

Invariants:
- `said` has what the server has granted. Each connection begins with it; so no connection is
  refused for a subject that was never granted.
- A `Place` has the subjects its session is known to stand for; the others are requested again.

It opens no connection and sends no request itself: `Connection` and `Requests` do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from .connection import Connection
from .requests import raise_error
from .transports import Place
from .types import HalleyError
from .wire import Message

#: A member of an operation: what it is about.
Member = Literal["subject", "presence"]
Op = Literal["subscribe", "unsubscribe"]
Key = tuple[str, str]
Work = Callable[[], Coroutine[Any, Any, None]]


class Requests(Protocol):
    """What is asked beside the connection."""

    async def may(self, said: Mapping[str, Sequence[str]]) -> None:
        """HalleyError where a connection that says this would be refused."""

    async def show_newest(self, subject: str, last: int) -> None:
        """Shows the newest events about it, fetched by polls."""


class Changes:
    """One after the other for each key, and none that is cancelled by who waits for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last: dict[Key, asyncio.Task[None]] = {}

    async def run(self, keys: Sequence[Key], work: Work) -> None:
        before = {self._last[key] for key in keys if key in self._last}
        task = self._connection.spawn(_after(before, work))
        for key in keys:
            self._last[key] = task
        task.add_done_callback(lambda _: self._forget(keys, task))
        # Unlike `await task`, it leaves the task alone when the one that waits is cancelled.
        await asyncio.wait({task})
        if task.cancelled():
            raise HalleyError("closed", "the client was closed")
        task.result()

    def _forget(self, keys: Sequence[Key], task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # whoever waited may be gone
        for key in keys:
            if self._last.get(key) is task:
                del self._last[key]


async def _after(before: set[asyncio.Task[None]], work: Work) -> None:
    if before:
        await asyncio.wait(before)
    await work()


class Subscriptions:
    def __init__(
        self, said: dict[str, dict[str, None]], connection: Connection, requests: Requests,
        timeout: float,
    ) -> None:
        #: By member, in the order in which they were granted.
        self.said = said
        self.changes = Changes(connection)
        self._connection = connection
        self._requests = requests
        self._timeout = timeout

    async def change(self, op: Op, member: Member, subjects: Sequence[str]) -> None:
        """The first refusal is raised; the others are done all the same."""
        keys: list[Key] = [(member, subject) for subject in dict.fromkeys(subjects)]
        if keys:
            await self.changes.run(keys, lambda: self._in_time(self._change(op, keys)))

    async def newest(self, subject: str, last: int) -> None:
        keys: list[Key] = [("subject", subject)]
        await self.changes.run(keys, lambda: self._in_time(self._newest(subject, last)))

    def ended(self, key: Key) -> None:
        """The server has ended it: the next call asks anew, on this connection too."""
        self._say([key], False)
        if self._connection.place is not None:
            self._connection.place.knows(key, False)

    async def _in_time(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await work
        except TimeoutError:
            raise HalleyError("timeout", "not answered") from None

    async def _change(self, op: Op, keys: list[Key]) -> None:
        self._connection.raise_if_closed()
        wants = op == "subscribe"
        granted = not wants
        if not wants:
            # No connection begins with it from now on, so without one nothing is left to do.
            self._say(keys, False)
            if self._connection.place is None:
                return
        while True:
            place = await self._connection.live()
            left = [key for key in keys if place.stands(key) is not wants]
            if not left:
                return
            if self._connection.in_band(place):
                if await self._all_in_band(place, op, left):
                    return
            elif not granted:
                await self._may(left)
                granted = True
            else:
                self._say(left, wants)
                self._connection.anew()
                if self._connection.resumes:
                    return

    async def _all_in_band(self, place: Place, op: Op, keys: list[Key]) -> bool:
        """Whether each was answered."""
        answers = await asyncio.gather(
            *(self._in_band(place, op, key) for key in keys), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return all(answers)

    async def _in_band(self, place: Place, op: Op, key: Key, last: int | None = None) -> bool:
        member, subject = key
        operation: dict[str, Any] = {"op": op, member: subject}
        if last is not None:
            operation["last"] = last
        stood, wants = place.stands(key), op == "subscribe"

        def answered(answer: Message) -> None:
            if not answer.get("error"):
                place.knows(key, wants)
                self._say([key], wants)
            elif place.stands(key) is None:  # else it has ended meanwhile
                place.knows(key, stood)
                if stood is not None:
                    self._say([key], stood)

        place.doubt(key)
        answer = await self._connection.operate(place, operation, answered, last is not None)
        raise_error(answer)
        return answer is not None

    async def _newest(self, subject: str, last: int) -> None:
        key = ("subject", subject)
        while True:
            place = await self._connection.live()
            if not self._connection.in_band(place):
                await self._requests.show_newest(subject, last)
                return await self._change("subscribe", [key])
            if await self._in_band(place, "subscribe", key, last):
                return

    async def _may(self, keys: list[Key]) -> None:
        said = {member: [*subjects] for member, subjects in self.said.items()}
        for member, subject in keys:
            said[member].append(subject)
        await self._requests.may(said)

    def _say(self, keys: Iterable[Key], wants: bool) -> None:
        for member, subject in keys:
            if wants:
                self.said[member][subject] = None
            else:
                self.said[member].pop(subject, None)
