"""Ids in the query, and what no address holds in a form (http.md 28)."""

from __future__ import annotations

import asyncio
import unittest
from urllib.parse import parse_qsl

import halley
from aiohttp import web

WAIT_S = 20.0
#: A hundred of a hundred bytes.
MANY = [f"{n:0>95}/rm7" for n in range(100)]
#: Some proxies take no longer one.
ADDRESS_MAX = 4_300


class Forms(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        #: Of each request its method, path, address and parameters, wherever they were.
        self.asked: list[tuple[str, str, str, list[tuple[str, str]]]] = []
        #: The error of a first message.
        self.refuses: dict[str, object] | None = None
        app = web.Application()
        app.router.add_get("/v1/ws", self.talk)
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.addAsyncCleanup(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def talk(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        said = list(request.query.items())
        if said == [("open", "message")]:
            said = parse_qsl((await socket.receive()).data)
        self.asked.append((request.method, request.path, request.path_qs, said))
        if self.refuses:
            await socket.send_json({"error": self.refuses})
            await socket.close(code=4400, message=b"refused")
            return socket
        await socket.send_json({} if "cursor" in dict(said) else {"cursor": "c1"})
        await socket.receive()
        return socket

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        said = [*request.query.items(), *((name, str(value)) for name, value in form.items())]
        self.asked.append((request.method, request.path, request.path_qs, said))
        if request.path == "/v1/poll":
            if dict(said).get("timeout") != "0":
                await asyncio.sleep(WAIT_S)
            return web.json_response({"events": [], "cursor": "c1"})
        if request.path != "/v1/stream":
            return web.json_response({"online": True})
        accept = request.headers["Accept"]
        stream = web.StreamResponse(headers={"Content-Type": accept})
        await stream.prepare(request)
        is_sse = accept == "text/event-stream"
        await stream.write(b": welcome\nid: c1\n\n" if is_sse else b'{"cursor":"c1"}\n')
        await asyncio.sleep(WAIT_S)
        return stream

    def connect(self, *transports: str, subjects: list[str] | None = None) -> halley.Client:
        return halley.connect(self.url, user="bob", transports=transports,
                              subjects=subjects or [])

    def subjects(self, at: int) -> list[str]:
        return [value for name, value in self.asked[at][3] if name == "subject"]

    async def test_a_form_where_an_address_is_too_long(self) -> None:
        for transport, path in [("sse", "stream"), ("ndjson", "stream"), ("poll", "poll")]:
            with self.subTest(transport):
                self.asked.clear()
                async with asyncio.timeout(WAIT_S), self.connect(
                        transport, subjects=MANY) as client:
                    await client.opened()
                method, asked, address, said = self.asked[0]
                self.assertEqual((method, asked), ("POST", f"/v1/{path}"))
                self.assertLess(len(address), ADDRESS_MAX)
                self.assertEqual(self.subjects(0), MANY)
                self.assertIn(("user", "bob"), said)

    async def test_an_address_where_it_is_not(self) -> None:
        async with asyncio.timeout(WAIT_S), self.connect("sse", subjects=MANY[:20]) as client:
            await client.opened()
        self.assertEqual(self.asked[0][0], "GET")

    async def test_the_first_message_where_a_websocket_has_no_room(self) -> None:
        for cursor in None, "c7":
            with self.subTest(cursor):
                self.asked.clear()
                client = halley.connect(self.url, user="bob", transports=["websocket"],
                                        subjects=MANY, cursor=cursor)
                async with asyncio.timeout(WAIT_S), client:
                    await client.opened()
                _, path, address, said = self.asked[0]
                self.assertEqual((path, address), ("/v1/ws", "/v1/ws?open=message"))
                self.assertEqual(self.subjects(0), MANY)
                self.assertIn(("user", "bob"), said)
                self.assertEqual(dict(said).get("cursor"), cursor)

    async def test_a_refused_first_message_says_why(self) -> None:
        self.refuses = {"status": 400, "code": "too_many_subscriptions", "message": "fewer"}
        async with asyncio.timeout(WAIT_S), self.connect("websocket", subjects=MANY) as client:
            with self.assertRaises(halley.HalleyError) as raised:
                await client.opened()
        self.assertEqual((raised.exception.code, raised.exception.status),
                         ("too_many_subscriptions", 400))

    async def test_whether_it_may_is_asked_by_a_form(self) -> None:
        async with asyncio.timeout(WAIT_S), self.connect("sse", subjects=MANY[:99]) as client:
            await client.opened()
            await client.subscribe(MANY[99])
            await client.opened()
        asks = [ask for ask in self.asked if ask[1] == "/v1/poll"]
        self.assertEqual(asks[0][0], "POST")
        self.assertLess(len(asks[0][2]), ADDRESS_MAX)
        self.assertEqual([value for name, value in asks[0][3] if name == "subject"], MANY)

    async def test_ids_stand_in_the_query(self) -> None:
        async with asyncio.timeout(WAIT_S), self.connect("sse") as client:
            await client.opened()
            await client.follow("room/7")
            await client.unfollow("a+b c&d")
            self.assertTrue(await client.presence("ann/é"))
        self.assertEqual(
            [(method, path, dict(said)["subject"]) for method, path, _, said in self.asked[1:]],
            [("PUT", "/v1/me/follows", "room/7"), ("DELETE", "/v1/me/follows", "a+b c&d"),
             ("GET", "/v1/me/presence", "ann/é")])


if __name__ == "__main__":
    unittest.main()
