"""A user of Halley: its events, and what it may do by itself.

It carries out what `machine` decides: one reader task at a time, one timer, one question for a
token. What arrives waits in a queue of EVENTS_MAX; when that is full nothing more is read, so that
a consumer that is slow is the server's to see (http.md 12). Requests go by HTTP beside the stream,
whatever the transport: who publishes within its own `async for` never waits for itself.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import (
    AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence,
)
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp

from . import machine as m
from .newest import Held, is_about, messages_of
from .requests import NDJSON, Publisher, Requests, raise_error, raise_first, segment
from .tokens import TokenKeeper, TokenSource
from .transports import TRANSPORTS, Place, loss_from, session, token_message
from .types import HalleyError, Item, Loss, State
from .wire import Message, Retry, Signal, lifetime_of, parse

EVENTS_MAX = 1_000
#: With what stands around it: a longer message would end the connection, whose next one would say
#: it again (`limits.message_bytes_max`, 65,536).
STATE_BYTES_MAX = 65_000
OnState = Callable[[State, HalleyError | None], None]


class Client(Publisher):
    """Made by `connect`; entered by `async with`, which connects and at its end closes."""

    _events = "/v1/me/events"

    def __init__(
        self, url: str, *, token: TokenSource = None, user: str | None = None,
        cursor: str | None = None, transports: Sequence[str] = tuple(TRANSPORTS),
        on_state: OnState | None = None, silence: float = 120.0, timeout: float = 60.0,
        subjects: Iterable[str] = (), last: int | None = None, presence: Iterable[str] = (),
    ) -> None:
        if not transports or set(transports) - set(TRANSPORTS):
            raise ValueError(f"transports are some of {', '.join(TRANSPORTS)}")
        self._base = url.rstrip("/")
        self._user = user
        self._keeper = TokenKeeper(token)
        self._transports = tuple(transports)
        self._start_cursor = cursor
        self._cursor = cursor
        self._on_state = on_state
        self._silence = silence
        self._timeout = timeout
        self._items: deque[Item] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._why: HalleyError | None = None
        self._reader: asyncio.Task[None] | None = None
        self._place: Place | None = None
        #: What each opening says, by member of an operation: in the order in which they came.
        self._said = {"subject": dict.fromkeys(subjects), "presence": dict.fromkeys(presence)}
        self._last = last
        #: What the user says of itself, said again on each connection.
        self._state: Any = None
        #: By `ref`: what was said in band and has no answer yet.
        self._asked: dict[str, asyncio.Future[Message | None]] = {}
        self._held = Held()
        self._refs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._http = session()
        self._requests = Requests(self._http, self._base, self._keeper, self._user)
        self._machine = m.Machine(
            transports=self._transports, now=loop.time, random=random.random,
            tokens=self._keeper.kind, token=self._keeper.current, cursor=self._start_cursor,
            silence=self._silence)
        self._apply(self._machine.start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the stream and what goes with it. Events that wait are still given."""
        self._apply(self._machine.close())
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.close()

    # ---- what a user sees ----

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def transport(self) -> str:
        """The one in use, or to be tried next."""
        return self._machine.transport

    @property
    def cursor(self) -> str | None:
        """All that `events` has given. Keep it to go on behind it in another process."""
        return self._cursor

    async def opened(self) -> None:
        """Waits for a connection that lives; HalleyError when there won't be any."""
        while self.state != "open":
            self._raise_if_closed()
            await self._next_change()

    async def events(self) -> AsyncIterator[Item]:
        """Each event once, and each gap in its place, until `close`; HalleyError when refused.

        Two loops over it share what comes: each item goes to one of them.
        """
        while True:
            while self._items:
                item = self._items.popleft()
                self._room.set()
                self._cursor = item.cursor or self._cursor
                yield item
            if self.state == "closed":
                if self._why is not None:
                    raise self._why
                return
            await self._next_change()

    async def follow(self, *subjects: str) -> dict[str, Any]:
        """`{"added", "already"}`. Of many, all that may be are made; then the first error."""
        return await self._follows("POST", subjects)

    async def unfollow(self, *subjects: str) -> dict[str, Any]:
        return await self._follows("DELETE", subjects)

    async def subscribe(self, *subjects: str, last: int | None = None) -> None:
        """Events about these come as well, as long as this client lives, without a follow.

        With `last` so many of the newest about each of them come first, among the `events`, the
        oldest first and each once. Over another transport than WebSocket what was published just
        before may come behind them.

        A refusal is raised, and ends nothing. Over WebSocket it is asked for in band; over another
        transport by a poll that waits for nothing, and then the stream is opened anew with all
        subjects.
        """
        if last is None:
            await self._add("subject", subjects)
        else:
            for subject in dict.fromkeys(subjects):
                await self._subscribe_newest(subject, last)

    async def unsubscribe(self, *subjects: str) -> None:
        await self._remove("subject", subjects)

    async def watch(self, *subjects: str) -> None:
        """Who is there, who comes and who leaves is among the `events`, as `Presence`; `*`: of all
        whom this user follows. As `subscribe` otherwise; long-poll isn't told."""
        await self._add("presence", subjects)

    async def unwatch(self, *subjects: str) -> None:
        await self._remove("presence", subjects)

    async def say(self, data: Any) -> None:
        """What those see who see that this user is there, 1 KB of it; None for nothing.

        It belongs to the connection, so each one says it again. Only a WebSocket carries it: over
        another transport it is kept for the next WebSocket, and said to nobody until then. What is
        refused isn't kept: the one before is what is said again.
        """
        if len(json.dumps(data)) > STATE_BYTES_MAX:
            raise HalleyError("state_too_large", f"more than {STATE_BYTES_MAX} bytes")
        before, self._state = self._state, data
        place = self._place
        if place is None or place.socket is None:
            return
        answer = await self._operate(place, {"op": "state", "data": data})
        if answer and answer.get("error") and self._state is data:
            self._state = before
        raise_error(answer)

    async def following(self) -> AsyncIterator[str]:
        after: str | None = None
        while True:
            page = parse(await self._ask("GET", "/v1/me/follows", after=after, limit="1000"))
            for subject in page["following"]:
                yield subject
            after = page["next"]
            if after is None:
                return

    async def presence(self, user: str) -> bool:
        """Whether that user is online."""
        answer = parse(await self._ask("GET", f"/v1/me/presence/{segment(user)}"))
        return bool(answer["online"])

    # ---- what the machine has decided, done ----

    async def _follows(self, method: str, subjects: Sequence[str]) -> dict[str, Any]:
        if len(subjects) == 1:
            one = "PUT" if method == "POST" else method
            return parse(await self._ask(one, f"/v1/me/follows/{segment(subjects[0])}"))
        body = "".join(json.dumps({"subject": subject}) + "\n" for subject in subjects)
        answer = parse(await self._ask(method, "/v1/me/follows", body=body, headers=NDJSON))
        raise_first(answer, 0)
        return {name: count for name, count in answer.items() if name != "errors"}

    async def _add(self, member: str, subjects: Sequence[str]) -> None:
        said = self._said[member]
        new = [subject for subject in subjects if subject not in said]
        if new and self._place is not None and self._place.socket is None:
            await self._may(member, new)
        said.update(dict.fromkeys(new))
        await self._change("subscribe", member, new)

    async def _subscribe_newest(self, subject: str, last: int) -> None:
        said = self._said["subject"]
        was_said = subject in said
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    await self.opened()
                    place = self._place
                    if place is None or place.socket is None:
                        await self._poll_newest(subject, last)
                        return await self._add("subject", [subject])
                    # If the answer is lost, the next connection says it, and is asked again.
                    said[subject] = None
                    operation = {"op": "subscribe", "subject": subject, "last": last}
                    answer = await self._operate(place, operation, holds=True)
                    if answer is not None:
                        break
        except TimeoutError:
            raise HalleyError("timeout", "not answered") from None
        if answer.get("error") and not was_said:
            said.pop(subject, None)
        raise_error(answer)

    async def _poll_newest(self, subject: str, last: int) -> None:
        """By polls that wait for nothing: one brings as much as the server sends in one go."""
        query = [("timeout", "0"), ("subject", subject), ("last", str(last))]
        found: list[Message] = []
        for _ in range(last):
            page = parse(await self._ask("GET", f"/v1/poll?{urlencode(query)}"))
            found += [message for message in messages_of(page) if is_about(message, subject)]
            if not page["events"] or len(found) >= last:
                break
            query[2] = ("cursor", page["cursor"])
        await self.opened()
        for message in found:
            self._apply(self._machine.message(message))

    async def _remove(self, member: str, subjects: Sequence[str]) -> None:
        said = self._said[member]
        old = [subject for subject in subjects if subject in said]
        for subject in old:
            del said[subject]
        await self._change("unsubscribe", member, old)

    async def _may(self, member: str, new: Sequence[str]) -> None:
        """Whether the next stream would be refused, without an end of this one (http.md 22.5)."""
        all_of = {name: [*said] for name, said in self._said.items()}
        all_of[member] += new
        query = [("timeout", "0"), *(("subject", subject) for subject in all_of["subject"])]
        if all_of["presence"]:
            query.append(("presence", ",".join(all_of["presence"])))
        await self._ask("GET", f"/v1/poll?{urlencode(query)}")

    async def _change(self, op: str, member: str, subjects: Sequence[str]) -> None:
        """In band where that is open; else the next connection says all of them."""
        place = self._place
        if not subjects or place is None:
            return
        if place.socket is None:
            self._apply(self._machine.again())
            return
        done = 0
        try:
            for subject in subjects:
                raise_error(await self._operate(place, {"op": op, member: subject}))
                done += 1
        finally:
            # Of those behind the first that failed the server knows nothing.
            for subject in subjects[done:]:
                if op == "subscribe":
                    self._said[member].pop(subject, None)
                else:
                    self._said[member][subject] = None

    async def _say_again(self, place: Place) -> None:
        if place.socket is not None:
            with suppress(HalleyError):  # nobody waits for it, and the next one says it again
                await self._operate(place, {"op": "state", "data": self._state})

    async def _operate(
        self, place: Place, operation: dict[str, Any], holds: bool = False,
    ) -> Message | None:
        """What was answered, or None if the connection was lost before."""
        if place is not self._place:
            return None
        self._refs += 1
        ref = f"r{self._refs}"
        asked: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._asked[ref] = asked
        if holds:
            self._held.begin(ref)
        try:
            await self._send(json.dumps(operation | {"ref": ref}))
            async with asyncio.timeout(self._timeout):
                return await asked
        except TimeoutError:
            raise HalleyError("timeout", "not answered") from None
        finally:
            self._asked.pop(ref, None)
            self._take(self._held.answered(ref, None), place)

    def _answered(self, message: Message) -> bool:
        asked = self._asked.get(message.get("ref", ""))
        if asked is not None and not asked.done():
            asked.set_result(message)
        return asked is not None

    def _apply(self, effects: list[m.Effect]) -> None:
        for effect in effects:
            match effect:
                case m.Open():
                    self._open(effect)
                case m.Drop():
                    self._drop()
                case m.Ask():
                    self._spawn(self._ask_token())
                case m.Renew():
                    self._spawn(self._send(token_message(effect.token)))
                case m.Show():
                    self._items.append(effect.item)
                    self._changed.set()
                case m.Tell():
                    self._tell(effect)
        self._arm()

    def _tell(self, effect: m.Tell) -> None:
        if effect.state == "closed":
            self._why = effect.why
        self._changed.set()
        if effect.state == "open" and self._state is not None and self._place is not None:
            self._spawn(self._say_again(self._place))
        if self._on_state is None:
            return
        try:
            self._on_state(effect.state, effect.why)
        except Exception as error:  # somebody else's code: it must not end the connection
            asyncio.get_running_loop().call_exception_handler(
                {"message": "on_state failed", "exception": error})

    def _open(self, effect: m.Open) -> None:
        self._place = Place(self._http, self._base, self._user, effect.token, effect.cursor,
                            tuple(self._said["subject"]), self._last,
                            presence=tuple(self._said["presence"]))
        transport = TRANSPORTS[effect.transport]
        self._reader = self._spawn(self._read(transport(self._place), self._place))

    def _drop(self) -> None:
        reader, self._reader, self._place = self._reader, None, None
        self._held.clear()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        # One that says itself that it is over ends by itself.
        if reader is not None and reader is not asyncio.current_task():
            reader.cancel()

    async def _read(self, signals: AsyncGenerator[Signal, None], place: Place) -> None:
        loss = Loss("closed")
        try:
            async with aclosing(signals) as stream:
                async for signal in stream:
                    if isinstance(signal, Loss):
                        loss = signal
                        break
                    if isinstance(signal, Retry):
                        self._apply(self._machine.retry(signal.seconds))
                    elif self._answered(signal):
                        self._apply(self._machine.heard())
                        self._take(self._held.answered(signal.get("ref", ""), signal), place)
                    else:
                        self._apply(self._machine.heard())
                        self._take(self._held.passes(signal), place)
                    if self._place is place:
                        await self._wait_for_room()
                    if self._place is not place:
                        return
        except Exception as error:  # whatever a network or a stranger's answer brings is a loss
            loss = loss_from(error)
        if self._place is place:
            self._apply(self._machine.lost(loss))

    def _take(self, messages: Iterable[Message], place: Place) -> None:
        """What came on this connection, as long as it is the one."""
        for message in messages:
            if self._place is place:
                self._apply(self._machine.message(message))

    async def _wait_for_room(self) -> None:
        if len(self._items) < EVENTS_MAX:
            return
        self._apply(self._machine.pause())
        while len(self._items) >= EVENTS_MAX:
            self._room.clear()
            await self._room.wait()
        self._apply(self._machine.heard())

    async def _send(self, text: str) -> None:
        if self._place is not None and self._place.socket is not None:
            try:
                await self._place.socket.send_str(text)
            except (aiohttp.ClientError, OSError):
                return  # the reader sees the same, and says it

    async def _ask_token(self) -> None:
        try:
            token = await self._keeper.renew()
        except Exception as error:  # the callback is somebody else's code
            self._apply(self._machine.token_failed(str(error) or type(error).__name__))
            return
        lifetime = lifetime_of(token, time.time()) if token else None
        self._apply(self._machine.token(token, lifetime))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._machine.due != float("inf"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._machine.due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self._machine.tick())

    def _raise_if_closed(self) -> None:
        if self.state == "closed":
            raise self._why or HalleyError("closed", "the client was closed")

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def connect(
    url: str, *, token: TokenSource = None, user: str | None = None, cursor: str | None = None,
    transports: Sequence[str] = tuple(TRANSPORTS), on_state: OnState | None = None,
    silence: float = 120.0, timeout: float = 60.0, subjects: Iterable[str] = (),
    last: int | None = None, presence: Iterable[str] = (),
) -> Client:
    """A user at the public listener at `url`.

    `token`: a JWT, or what gives one, async or not, and is asked again before it expires. `user`:
    for a server that asks for no tokens. `cursor`: to go on where somebody was. `transports`: which
    of them, in which order. `on_state`: told each state and why; it must not wait. `silence`: after
    so many seconds without a word a connection is given up; keep it above the server's
    `stream.heartbeat`. `timeout`: for how long a request is tried, in seconds. `subjects`: what
    comes besides what the user follows; with them nobody need be the user. `last`: so many of the
    newest events about each of them come first, unless there is a cursor. `presence`: as for
    `watch`.
    """
    return Client(
        url, token=token, user=user, cursor=cursor, transports=transports, on_state=on_state,
        silence=silence, timeout=timeout, subjects=subjects, last=last, presence=presence)
