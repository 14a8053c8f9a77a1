"""However a subscription ended, a later `subscribe` requests it anew (http.md 21.4, 21.9)."""

from __future__ import annotations

import asyncio
import random
import unittest
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import halley
from aiohttp import web
from model_server import ModelServer
from small_server import WAIT_S, AtAServer, Operation, ndjson, refused

TRANSPORTS = ["websocket", "ndjson"]
Way = Callable[["AtAModel", halley.Client], Awaitable[None]]


async def by_the_server(test: AtAModel, client: halley.Client) -> None:
    test.server.end("a", "ended_by_server")
    await test.told("ended_by_server")


async def with_its_right(test: AtAModel, client: halley.Client) -> None:
    test.server.end("a", "right_missing")
    await test.told("right_missing")


async def before_a_cut(test: AtAModel, client: halley.Client) -> None:
    await by_the_server(test, client)
    test.server.cut()


async def behind_a_cut(test: AtAModel, client: halley.Client) -> None:
    test.server.cut()
    while client.state == "open":
        await asyncio.sleep(0.01)
    await client.opened()
    await by_the_server(test, client)


async def by_unsubscribe(test: AtAModel, client: halley.Client) -> None:
    await client.unsubscribe("a")


async def by_a_cancelled_unsubscribe(test: AtAModel, client: halley.Client) -> None:
    task = asyncio.create_task(client.unsubscribe("a"))
    await asyncio.sleep(0.01)
    task.cancel()


async def twice(test: AtAModel, client: halley.Client) -> None:
    await by_the_server(test, client)
    await client.subscribe("a")
    await test.shows(client, "a")
    test.codes.clear()
    await by_the_server(test, client)


WAYS: list[Way] = [
    by_the_server, with_its_right, before_a_cut, behind_a_cut, by_unsubscribe,
    by_a_cancelled_unsubscribe, twice,
]


class AtAModel(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)
        self.server = ModelServer(random.Random(7), 0.02)
        self.url, runner = await self.server.start()
        self.addAsyncCleanup(runner.cleanup)

    async def told(self, code: str) -> None:
        while code not in self.codes:
            await asyncio.sleep(0.01)

    async def shows(self, client: halley.Client, subject: str) -> None:
        place = self.server.publish(subject)
        async for item in client.events():
            assert isinstance(item, halley.Event)
            if item.data == place:
                return

    async def test_subscribe_asks_anew(self) -> None:
        for transport in TRANSPORTS:
            for way in WAYS:
                with self.subTest(f"{transport} {way.__name__}"):
                    await self.ends(transport, way)

    async def ends(self, transport: str, way: Way) -> None:
        self.codes: list[str] = []
        async with (
            asyncio.timeout(WAIT_S),
            halley.connect(
                self.url, user="b", transports=[transport], subjects=["kept"],
                on_state=lambda _, why: self.codes.append(why.code) if why else None,
            ) as client,
        ):
            await client.subscribe("a")
            await self.shows(client, "a")
            await way(self, client)
            await client.subscribe("a")
            await self.shows(client, "a")
            await self.shows(client, "kept")


class InOneGo(AtAServer):
    """What comes right behind an answer is dealt with behind it."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.opened: list[list[str]] = []
        self.said: list[Operation] = []

    async def serve_frames(self, answers: Callable[[Operation], list[Operation] | None]) -> str:
        """Each operation gets messages that arrive together; None: it is hung up."""
        async def websocket(request: web.Request) -> web.StreamResponse:
            self.opened.append(request.query.getall("subject", []))
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_json({"cursor": "c0"})
            async for received in socket:
                operation = received.json()
                self.said.append(operation)
                messages = answers(operation)
                if messages is None:
                    break
                transport = request.transport
                assert transport is not None
                frames = bytearray()
                with patch.object(transport, "write", frames.extend):
                    for message in messages:
                        await socket.send_json(message)
                transport.write(bytes(frames))
            return socket

        return await self.serve(ndjson, websocket=websocket)

    async def test_an_end_behind_the_answer(self) -> None:
        ended = {"ended": {"reason": "ended_by_server", "subjects": ["a"]}}

        def answers(operation: Operation) -> list[Operation]:
            ok = {"ref": operation["ref"], "ok": {}}
            return [ok, ended] if len(self.said) == 1 else [ok]

        url = await self.serve_frames(answers)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            async with asyncio.timeout(WAIT_S):
                await client.subscribe("a")
                await client.subscribe("a")
                await client.subscribe("a")
        self.assertEqual([one["op"] for one in self.said], ["subscribe"] * 2)

    async def test_an_end_before_the_answer_ends_what_was_before(self) -> None:
        ended = {"ended": {"reason": "ended_by_server", "subjects": ["a"]}}

        def answers(operation: Operation) -> list[Operation] | None:
            if operation.get("subject") == "b":
                return [{"ref": operation["ref"], "ok": {}}] if len(self.opened) > 1 else None
            return [ended, {"ref": operation["ref"], "ok": {"events": []}}]

        url = await self.serve_frames(answers)
        async with halley.connect(
            url, user="b", transports=["websocket"], subjects=["a"],
        ) as client:
            async with asyncio.timeout(WAIT_S):
                await client.opened()
                await client.subscribe("a", last=5)
                await client.subscribe("b")
        self.assertEqual(self.opened, [["a"], ["a"]], "it was granted behind its end")

    async def test_a_refusal_behind_an_end_brings_nothing_back(self) -> None:
        ended = {"ended": {"reason": "right_missing", "subjects": ["a"], "state": True}}

        def answers(operation: Operation) -> list[Operation] | None:
            if len(self.opened) > 1:
                return [{"ref": operation["ref"], "ok": {}}]
            if operation.get("subject") == "b":
                return None
            return [ended, {"ref": operation["ref"], **refused("right_missing")}]

        url = await self.serve_frames(answers)
        async with halley.connect(
            url, user="b", transports=["websocket"], subjects=["a"],
        ) as client:
            async with asyncio.timeout(WAIT_S):
                await client.opened()
                for change in (client.unsubscribe("a"), client.say({"is": "busy"})):
                    with self.assertRaises(halley.HalleyError):
                        await change
                await client.subscribe("b")
                await client.subscribe("a")
        self.assertEqual(self.opened, [["a"], []])
        self.assertEqual([(one["op"], one.get("subject")) for one in self.said],
                         [("unsubscribe", "a"), ("state", None), ("subscribe", "b"),
                          ("subscribe", "b"), ("subscribe", "a")])


if __name__ == "__main__":
    unittest.main()
