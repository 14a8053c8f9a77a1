"""One connection after the other: does what `machine` decides, and keeps what arrives.

One reader task at a time, one timer, one pending call of the token callback. Messages wait in
`items`. At EVENTS_MAX of them nothing more is read, so that the server can see a slow consumer
(http.md 12). While an operation waits for its answer, which may come after events, up to AHEAD_MAX
are read; beyond that there is no answer to be had in band (`in_band`).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any

import aiohttp

from . import machine as m
from .newest import Held
from .tokens import TokenKeeper
from .transports import TRANSPORTS, Place, loss_from, token_message
from .types import HalleyError, Item, Loss, State
from .wire import Message, Retry, Signal, lifetime_of, names_of

EVENTS_MAX = 1_000
AHEAD_MAX = 10 * EVENTS_MAX
#: The server lets so many operations of a session wait, and refuses more
#: (`limits.operations_waiting_max`).
SENT_MAX = 16
OnState = Callable[[State, HalleyError | None], None]
OnAnswer = Callable[[Message], None]


class Connection:
    """`begin` makes a place of what the machine opens; `on_state` is somebody else's code."""

    def __init__(
        self, *, transports: tuple[str, ...], keeper: TokenKeeper, cursor: str | None,
        silence: float, timeout: float, begin: Callable[[m.Open], Place],
        on_open: Callable[[Place], None], on_state: OnState | None,
        on_ended: Callable[[Message], None],
    ) -> None:
        self.items: deque[Item] = deque()
        self.why: HalleyError | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._keeper = keeper
        self._timeout = timeout
        self._begin = begin
        self._on_open = on_open
        self._on_state = on_state
        self._on_ended = on_ended
        self._machine = m.Machine(
            transports=transports, now=asyncio.get_running_loop().time, random=random.random,
            tokens=keeper.kind, token=keeper.current, cursor=cursor, silence=silence)
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._place: Place | None = None
        #: By `ref`: what was sent in band and has no answer yet.
        self._asked: dict[str, asyncio.Future[Message | None]] = {}
        #: What is to be done the moment the answer comes, before what comes behind it.
        self._answers: dict[str, OnAnswer] = {}
        self._sent = asyncio.Semaphore(SENT_MAX)
        self._held = Held()
        self._refs = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._apply(self._machine.start())

    async def close(self) -> None:
        self._apply(self._machine.close())
        tasks = [*self.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- what it is ----

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def transport(self) -> str:
        return self._machine.transport

    @property
    def place(self) -> Place | None:
        """The connection that there is, which may have said nothing yet."""
        return self._place

    @property
    def resumes(self) -> bool:
        """There is a cursor: another connection brings all that is published from now on."""
        return self._machine.cursor is not None

    def in_band(self, place: Place) -> bool:
        """Whether an operation can be sent over it, and its answer read."""
        return place.socket is not None and len(self.items) < AHEAD_MAX

    async def next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def raise_if_closed(self) -> None:
        if self.state == "closed":
            raise self.why or HalleyError("closed", "the client was closed")

    async def live(self) -> Place:
        """The connection, once it has spoken; HalleyError when there won't be any."""
        while self._machine.phase != "live" or self._place is None:
            self.raise_if_closed()
            await self.next_change()
        return self._place

    # ---- what can be asked of it ----

    def take_item(self) -> Item:
        item = self.items.popleft()
        self._room.set()
        return item

    def anew(self) -> None:
        """The next connection says something else than this one: it comes at once."""
        self._apply(self._machine.again())

    def show(self, messages: Iterable[Message]) -> None:
        """As if they had just arrived."""
        for message in messages:
            self._apply(self._machine.message(message))

    async def operate(
        self, place: Place, operation: dict[str, Any], on_answer: OnAnswer | None = None,
        holds: bool = False,
    ) -> Message | None:
        """What was answered; None where there is no answer to come: the connection was lost, or
        more is unread before the answer than is read ahead. `on_answer` is called before anything
        that comes behind the answer is dealt with. `holds`: what arrives meanwhile is shown after
        the answer's own events."""
        try:
            async with asyncio.timeout(self._timeout), self._sent:
                return await self._operate(place, operation, on_answer, holds)
        except TimeoutError:
            raise HalleyError("timeout", "not answered") from None

    async def _operate(
        self, place: Place, operation: dict[str, Any], on_answer: OnAnswer | None, holds: bool,
    ) -> Message | None:
        if place is not self._place or not self.in_band(place):
            return None
        self._refs += 1
        ref = f"r{self._refs}"
        asked: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._asked[ref] = asked
        if on_answer is not None:
            self._answers[ref] = on_answer
        self._room.set()
        if holds:
            self._held.begin(ref)
        try:
            await self._send(json.dumps(operation | {"ref": ref}))
            return await asked
        finally:
            self._asked.pop(ref, None)
            self._answers.pop(ref, None)
            self._take(self._held.answered(ref, None), place)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the connection at the latest."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # ---- what the machine has decided, done ----

    def _apply(self, effects: list[m.Effect]) -> None:
        for effect in effects:
            match effect:
                case m.Open():
                    self._open(effect)
                case m.Drop():
                    self._drop()
                case m.Ask():
                    self.spawn(self._ask_token())
                case m.Renew():
                    self.spawn(self._send(token_message(effect.token)))
                case m.Show():
                    self.items.append(effect.item)
                    self._changed.set()
                case m.Tell():
                    self._tell(effect)
        self._arm()

    def _tell(self, effect: m.Tell) -> None:
        if effect.state == "closed":
            self.why = effect.why
        self._changed.set()
        if self._on_state is None:
            return
        try:
            self._on_state(effect.state, effect.why)
        except Exception as error:  # somebody else's code: it must not end the connection
            asyncio.get_running_loop().call_exception_handler(
                {"message": "on_state failed", "exception": error})

    def _open(self, effect: m.Open) -> None:
        self._place = self._begin(effect)
        transport = TRANSPORTS[effect.transport]
        self._reader = self.spawn(self._read(transport(self._place), self._place))

    def _drop(self) -> None:
        reader, self._reader, self._place = self._reader, None, None
        self._held.clear()
        self._unanswered()
        # One that says itself that it is over ends by itself.
        if reader is not None and reader is not asyncio.current_task():
            reader.cancel()

    def _unanswered(self) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)

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
                    else:
                        self._arrived(signal, place)
                    if self._place is place:
                        await self._wait_for_room()
                    if self._place is not place:
                        return
        except Exception as error:  # whatever a network or a stranger's answer brings is a loss
            loss = loss_from(error)
        if self._place is place:
            self._apply(self._machine.lost(loss))

    def _arrived(self, message: Message, place: Place) -> None:
        was_live = self._machine.phase == "live"
        self._apply(self._machine.heard())
        if self._answered(message):
            self._take(self._held.answered(message.get("ref", ""), message), place)
        else:
            self._take(self._held.passes(message), place)
        if not was_live and self._place is place:
            # After the message: the cursor of a welcome is known.
            self._changed.set()
            self._on_open(place)

    def _answered(self, message: Message) -> bool:
        ref = message.get("ref", "")
        asked = self._asked.get(ref)
        if asked is not None and not asked.done():
            if ref in self._answers:
                self._answers.pop(ref)(message)
            asked.set_result(message)
        return asked is not None

    def _take(self, messages: Iterable[Message], place: Place) -> None:
        """What came on this connection, as long as it is the one."""
        for message in messages:
            if self._place is place:
                if ended := message.get("ended"):
                    self._on_ended(ended)
                    why = HalleyError(ended["reason"], str(names_of(ended)))
                    self._apply([m.Tell(self.state, why)])
                self._apply(self._machine.message(message))

    async def _wait_for_room(self) -> None:
        if self._has_room():
            return
        self._apply(self._machine.pause())
        while not self._has_room():
            self._room.clear()
            await self._room.wait()
        self._apply(self._machine.heard())

    def _has_room(self) -> bool:
        if len(self.items) < EVENTS_MAX:
            return True
        if len(self.items) >= AHEAD_MAX:
            self._unanswered()
            return False
        return any(not asked.done() for asked in self._asked.values())

    async def _send(self, text: str) -> None:
        if self._place is not None and self._place.socket is not None:
            try:
                await self._place.socket.send_str(text)
            except (aiohttp.ClientError, OSError):
                return  # the reader sees the same, and says it

    async def _ask_token(self) -> None:
        try:
            token = await self._keeper.renew()
        except HalleyError as error:
            if error.__cause__ is not None:  # somebody else's mistake, to be seen with its place
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "the token callback failed", "exception": error.__cause__})
            self._apply(self._machine.token_failed(error.message))
            return
        lifetime = lifetime_of(token, time.time()) if token else None
        self._apply(self._machine.token(token, lifetime))

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
