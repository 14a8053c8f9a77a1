"""`subscribe` and the like return when the change holds, whatever delays it."""

from __future__ import annotations

import asyncio
import json
import random
import unittest

import halley
from aiohttp import web
from halley.connection import AHEAD_MAX, EVENTS_MAX
from model_server import ModelServer
from small_server import WAIT_S, AtAServer, Operation, line, ndjson

TRANSPORTS = ["websocket", "ndjson"]


class AtAModel(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)
        self.server = ModelServer(random.Random(7), 0.1)
        self.url, runner = await self.server.start()
        self.addAsyncCleanup(runner.cleanup)

    def connect(self, transport: str) -> halley.Client:
        return halley.connect(self.url, user="b", transports=[transport])

    async def shows(self, client: halley.Client, subject: str) -> None:
        place = self.server.publish(subject)
        async with asyncio.timeout(WAIT_S):
            async for item in client.events():
                assert isinstance(item, halley.Event)
                if item.data == place:
                    return

    async def test_straight_after_connect(self) -> None:
        for transport in TRANSPORTS:
            for _ in range(5):
                with self.subTest(transport):
                    async with self.connect(transport) as client:
                        await client.subscribe("a")
                        await self.shows(client, "a")

    async def test_a_cancelled_unsubscribe_and_then_subscribe(self) -> None:
        for transport in TRANSPORTS:
            with self.subTest(transport):
                async with self.connect(transport) as client:
                    await client.subscribe("a")
                    task = asyncio.create_task(client.unsubscribe("a"))
                    await asyncio.sleep(0.01)
                    task.cancel()
                    await client.subscribe("a")
                    await self.shows(client, "a")

    async def test_the_second_of_two_waits_as_well(self) -> None:
        for transport in TRANSPORTS:
            with self.subTest(transport):
                async with self.connect(transport) as client:
                    await client.opened()
                    first = asyncio.create_task(client.subscribe("a"))
                    await asyncio.sleep(0)
                    await client.subscribe("a")
                    await self.shows(client, "a")
                    await first

    async def test_the_last_wins(self) -> None:
        for transport in TRANSPORTS:
            with self.subTest(transport):
                async with self.connect(transport) as client:
                    await client.opened()
                    await asyncio.gather(
                        client.subscribe("a"), client.unsubscribe("a"), client.subscribe("a"))
                    await self.shows(client, "a")

    async def test_an_iterator_that_was_cancelled_goes_on(self) -> None:
        async with self.connect("websocket") as client:
            await client.subscribe("a")
            events = client.events()
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(events)
            self.server.publish("a")
            async with asyncio.timeout(WAIT_S):
                item = await anext(events)
            assert isinstance(item, halley.Event)
            self.assertEqual(item.subject, "a")

    async def test_close_ends_what_waits(self) -> None:
        async with halley.connect("http://127.0.0.1:1", user="b") as client:
            task = asyncio.create_task(client.subscribe("a"))
            await asyncio.sleep(0.05)
        with self.assertRaises(halley.HalleyError) as caught:
            await task
        self.assertEqual(caught.exception.code, "closed")


class Unread(AtAServer):
    """Answers stand behind events that nobody takes."""

    async def serve_unread(self, count: int) -> str:
        self.opened: list[list[str]] = []
        self.said: list[Operation] = []

        async def websocket(request: web.Request) -> web.StreamResponse:
            self.opened.append(request.query.getall("subject", []))
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            first = int((request.query.get("cursor") or "c-1")[1:]) + 1
            for n in range(first, count):
                await socket.send_str(line(n).decode())
            async for received in socket:
                operation = json.loads(received.data)
                self.said.append(operation)
                await socket.send_json({"ref": operation["ref"], "ok": {}})
            return socket

        return await self.serve(ndjson, websocket=websocket)

    async def events(self, client: halley.Client, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            for n in range(count):
                item = await anext(client.events())
                assert isinstance(item, halley.Event)
                self.assertEqual(item.at, n)

    async def test_answers_are_read_ahead_of_them(self) -> None:
        count = 3 * EVENTS_MAX
        url = await self.serve_unread(count)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            await client.opened()
            async with asyncio.timeout(WAIT_S / 2):
                await client.subscribe("a")
                await client.watch("a")
                await client.say({"is": "busy"})
            self.assertEqual([one["op"] for one in self.said], ["subscribe", "subscribe", "state"])
            await self.events(client, count)
        self.assertEqual(len(self.opened), 1)

    async def test_behind_more_than_is_read_ahead_the_next_connection_says_it(self) -> None:
        count = 2 * AHEAD_MAX
        url = await self.serve_unread(count)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            await client.opened()
            async with asyncio.timeout(WAIT_S / 2):
                await client.subscribe("a")
            self.assertLessEqual(len(client._connection.items), AHEAD_MAX + 1)
            await self.events(client, count)
        self.assertEqual(self.opened, [[], ["a"]])


if __name__ == "__main__":
    unittest.main()
