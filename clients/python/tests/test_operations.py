"""Random operations, cancelled at random, over a network that is slow and breaks: the events of
each subscription arrive once and in order, and no call waits for ever (http.md 21.4).

`HALLEY_OPERATIONS=10000` and `HALLEY_SEED` are for longer runs than this one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import unittest
from contextlib import suppress
from unittest.mock import patch

import halley
from halley import machine
from model_server import ModelServer

OPERATIONS = int(os.environ.get("HALLEY_OPERATIONS", "400"))
SEED = int(os.environ.get("HALLEY_SEED", random.randrange(1_000_000)))
SUBJECTS = [f"room/{n}" for n in range(5)]
LATENCY_S = 0.01
WAIT_S = 60.0


class Owed:
    """Which events must be shown: those of a subject from when `subscribe` has returned. What
    hasn't been shown when `unsubscribe` is called isn't wanted any more."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self.shown: list[int] = []
        self._since: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._places: dict[int, str] = {}
        self._calls = 0

    def called(self, op: str, subject: str) -> int:
        self._calls += 1
        self._last[subject] = self._calls
        if op == "unsubscribe":
            self._since.pop(subject, None)
            for place in self.missing():
                if self._places[place] == subject:
                    del self._places[place]
        return self._calls

    def returned(self, op: str, subject: str, call: int) -> None:
        if op == "subscribe" and self._last[subject] == call:
            self._since.setdefault(subject, self._server.now)

    def publish(self, subject: str) -> None:
        place = self._server.publish(subject)
        if subject in self._since:
            self._places[place] = subject

    def missing(self) -> list[int]:
        return sorted(self._places.keys() - set(self.shown))


class Story:
    def __init__(self, transport: str, chance: random.Random) -> None:
        self._chance = chance
        self._transport = transport
        self._server = ModelServer(chance, LATENCY_S)
        self._owed = Owed(self._server)
        self._reading = asyncio.Event()
        self._reading.set()

    async def run(self, operations: int) -> None:
        url, runner = await self._server.start()
        try:
            async with halley.connect(url, user="b", transports=[self._transport]) as client:
                reader = asyncio.create_task(self._read(client))
                await self._operate(client, operations)
                self._reading.set()
                await self._end(client)
                reader.cancel()
                with suppress(asyncio.CancelledError):
                    await reader
        finally:
            await runner.cleanup()
        assert not self._owed.missing(), f"lost: {self._owed.missing()}"
        shown = self._owed.shown
        assert len(shown) == len(set(shown)), "shown twice"

    async def _read(self, client: halley.Client) -> None:
        """Who reads is interrupted as well."""
        events = client.events()
        while True:
            await self._reading.wait()
            try:
                async with asyncio.timeout(0.05):
                    item = await anext(events)
            except TimeoutError:
                continue
            assert isinstance(item, halley.Event), item
            assert isinstance(item.data, int)
            self._owed.shown.append(item.data)

    async def _operate(self, client: halley.Client, operations: int) -> None:
        calls: set[asyncio.Task[None]] = set()
        for _ in range(operations):
            self._owed.publish(self._chance.choice(SUBJECTS))
            subject = self._chance.choice(SUBJECTS)
            op = self._chance.choice(["subscribe", "unsubscribe", "subscribe"])
            call = self._owed.called(op, subject)
            task = asyncio.create_task(self._call(client, op, subject, call))
            calls.add(task)
            task.add_done_callback(calls.discard)
            match self._chance.randrange(100):
                case n if n < 20:
                    await asyncio.sleep(self._chance.random() * LATENCY_S)
                    task.cancel()
                case n if n < 70:
                    await asyncio.wait({task})
                case n if n < 71:
                    self._server.cut()
                case n if n < 73:
                    self._reading.clear()
                case n if n < 76:
                    self._reading.set()
            await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            while calls:
                await asyncio.wait(set(calls))

    async def _call(self, client: halley.Client, op: str, subject: str, call: int) -> None:
        async with asyncio.timeout(WAIT_S):
            await (client.subscribe(subject) if op == "subscribe" else client.unsubscribe(subject))
        self._owed.returned(op, subject, call)

    async def _end(self, client: halley.Client) -> None:
        for subject in SUBJECTS:
            await self._call(client, "subscribe", subject, self._owed.called("subscribe", subject))
            self._owed.publish(subject)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while self._owed.missing():
                    await asyncio.sleep(0.02)


class RandomOperations(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        # Connections are cut every second: waits of half a minute would be most of the run.
        for name, wait in {"WAIT_S": 0.01, "WAIT_S_MAX": 0.1, "RETRY_S": 0.01}.items():
            patcher = patch.object(machine, name, wait)
            patcher.start()
            self.addCleanup(patcher.stop)

    async def story(self, transport: str) -> None:
        print(f"{transport}: {OPERATIONS} operations, seed {SEED}", file=sys.stderr)
        await Story(transport, random.Random(f"{SEED} {transport}")).run(OPERATIONS)

    async def test_by_websocket(self) -> None:
        await self.story("websocket")

    async def test_by_ndjson(self) -> None:
        await self.story("ndjson")


if __name__ == "__main__":
    unittest.main()
