"""Random operations of many clients at a real Halley, through a network that is slow and breaks.

`network_story.py CLIENTS_URL API_URL` takes OPERATIONS, CLIENTS and SEED from the environment. Each
transport has a part of them. It prints its counts as a line of JSON, and fails if an event was
lost, shown twice or out of order, or if a call hung. test/system runs it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from types import ModuleType
from unittest.mock import patch

import halley
from halley import machine, requests, transports

OPERATIONS = int(os.environ.get("OPERATIONS", "400"))
#: Of each transport.
CLIENTS = int(os.environ.get("CLIENTS", "4"))
SEED = os.environ.get("SEED", "1")
TRANSPORTS = ["websocket", "sse", "ndjson", "poll"]
SUBJECTS = 5
#: Beyond it a call hangs, or an event is lost.
WAIT_S = 120.0
#: Connections are reset, or fall silent, every few seconds: waits of half a minute would be most
#: of the run. The server's heartbeat is one second.
SILENCE_S = 3.0
WAITS: list[tuple[ModuleType, str, float]] = [
    (machine, "WAIT_S", 0.05), (machine, "WAIT_S_MAX", 0.5), (machine, "RETRY_S", 0.1),
    (machine, "OPEN_S", 5.0), (requests, "ANSWER_S", 5.0), (transports, "POLL_S", 2),
]


class Publisher:
    """One batch after the other, in the order in which they were asked for."""

    def __init__(self, server: halley.Server) -> None:
        self._server = server
        self._events: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.published = 0

    def publish(self, subject: str, data: int) -> None:
        self._events.put_nowait({"subject": subject, "data": data})

    async def run(self) -> None:
        while True:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            for result in await self._server.publish_many(events):
                assert isinstance(result, halley.Published), result
            self.published += len(events)


class User:
    """One client. What it is owed: the events about a subject from when `subscribe` has returned
    to when `unsubscribe` is called."""

    def __init__(self, name: str, transport: str, publisher: Publisher) -> None:
        self.seen: Counter[str] = Counter()
        self._transport = transport
        self._publisher = publisher
        self._chance = random.Random(f"{SEED} {name}")
        self._name = name
        self._subjects = [f"{name}/{n}" for n in range(SUBJECTS)]
        #: The subjects that it is subscribed to, and its last call about each.
        self._since: set[str] = set()
        self._last: dict[str, int] = {}
        self._owed: dict[int, str] = {}
        self._shown: dict[str, list[int]] = {subject: [] for subject in self._subjects}
        self._numbers = 0

    async def run(self, url: str, operations: int) -> None:
        async with halley.connect(
            url, user=self._name, transports=[self._transport], timeout=WAIT_S,
            silence=SILENCE_S, on_state=self._on_state,
        ) as client:
            reader = asyncio.create_task(self._read(client))
            await self._operate(client, operations)
            await self._end(client)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        self.seen["lost"] += len(self._owed)
        for shown in self._shown.values():
            self.seen["shown"] += len(shown)
            self.seen["twice"] += len(shown) - len(set(shown))
            self.seen["unordered"] += sum(a > b for a, b in zip(shown, shown[1:], strict=False))

    def _on_state(self, state: str, why: halley.HalleyError | None) -> None:
        self.seen[state] += 1
        self.seen["silent"] += why is not None and why.code == "silent"

    async def _read(self, client: halley.Client) -> None:
        """Who reads is interrupted as well."""
        events = client.events()
        while True:
            try:
                async with asyncio.timeout(0.2):
                    item = await anext(events)
            except TimeoutError:
                continue
            if isinstance(item, halley.Event):
                assert item.subject is not None
                self._shown[item.subject].append(item.data)
                self._owed.pop(item.data, None)
            else:
                self.seen["gaps"] += 1

    def _publish(self, subject: str) -> None:
        self._numbers += 1
        self._publisher.publish(subject, self._numbers)
        if subject in self._since:
            self._owed[self._numbers] = subject
            self.seen["owed"] += 1

    async def _operate(self, client: halley.Client, operations: int) -> None:
        chance = self._chance
        calls: set[asyncio.Task[None]] = set()
        for _ in range(operations):
            self._publish(chance.choice(self._subjects))
            op = chance.choice(["subscribe", "unsubscribe", "subscribe"])
            task = asyncio.create_task(self._call(client, op, chance.choice(self._subjects)))
            calls.add(task)
            task.add_done_callback(calls.discard)
            await asyncio.sleep(0)
            self._publish(chance.choice(self._subjects))
            match chance.randrange(100):
                case n if n < 25:
                    await asyncio.sleep(0.4 * chance.random() ** 4)
                    self.seen["cancelled"] += task.cancel()
                case n if n < 75:
                    await asyncio.wait({task})
        while calls:
            await asyncio.wait(set(calls))

    async def _call(self, client: halley.Client, op: str, subject: str) -> None:
        """Of several calls about one subject the last counts."""
        self.seen["operations"] += 1
        call = self._last[subject] = self.seen["operations"]
        if op == "unsubscribe":
            self._since.discard(subject)
            for number in [n for n, about in self._owed.items() if about == subject]:
                del self._owed[number]
        try:
            async with asyncio.timeout(WAIT_S):
                await (client.subscribe(subject) if op == "subscribe"
                       else client.unsubscribe(subject))
        except (TimeoutError, halley.HalleyError) as error:
            self.seen["hung"] += 1
            print(f"{self._name}: {op} {subject}: {error!r}", file=sys.stderr)
            return
        if op == "subscribe" and self._last[subject] == call:
            self._since.add(subject)

    async def _end(self, client: halley.Client) -> None:
        for subject in self._subjects:
            await self._call(client, "subscribe", subject)
            self._publish(subject)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while self._owed:
                    await asyncio.sleep(0.05)


async def until_all(running: list[asyncio.Task[None]], publishing: asyncio.Task[None]) -> None:
    """Until all users are done; one that fails, or the publisher, ends the story."""
    left: set[asyncio.Task[None]] = set(running)
    while left:
        done, _ = await asyncio.wait({*left, publishing}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        left -= done


async def story(clients_url: str, api_url: str) -> bool:
    began = time.monotonic()
    async with halley.server(api_url) as server:
        publisher = Publisher(server)
        publishing = asyncio.create_task(publisher.run())
        users = [User(f"{transport} {n}", transport, publisher)
                 for transport in TRANSPORTS for n in range(CLIENTS)]
        each = -(-OPERATIONS // len(users))
        running = [asyncio.create_task(user.run(clients_url, each)) for user in users]
        try:
            await until_all(running, publishing)
        finally:
            publishing.cancel()
    seen = Counter(lost=0, twice=0, unordered=0, gaps=0, hung=0)
    for user in users:
        seen.update(user.seen)
    print(json.dumps({"seed": SEED, "published": publisher.published, **seen,
                      "seconds": round(time.monotonic() - began)}))
    return not any(seen[name] for name in ("lost", "twice", "unordered", "gaps", "hung"))


if __name__ == "__main__":
    with ExitStack() as patches:
        for module, name, wait in WAITS:
            patches.enter_context(patch.object(module, name, wait))
        sys.exit(0 if asyncio.run(story(*sys.argv[1:])) else 1)
