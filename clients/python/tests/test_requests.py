"""Requests whose answers are malformed, late or missing, and closing while one waits."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import halley
from aiohttp import web
from halley import requests
from small_server import WAIT_S, AtAServer, converse, line, ndjson

Call = Callable[[halley.Client], Awaitable[object]]
CALLS: list[Call] = [
    lambda client: client.publish("a", 1),
    lambda client: client.publish_many([{"subject": "a", "data": 1}]),
    lambda client: client.follow("a"),
    lambda client: client.follow("a/b"),
    lambda client: client.presence("a"),
    lambda client: anext(client.following()),
    lambda client: client.subscribe("a"),
    lambda client: client.subscribe("a", last=3),
]


#: Answers that may be Halley's; an event that it says nothing of gets an error in its place.
MAY_BE = {("JSON without what belongs", 1), ("JSON without what belongs", 2),
          ("JSON without what belongs", 3), ("nothing", 1)}


async def hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(WAIT_S)
    return web.Response()


def says(body: bytes, status: int = 200, kind: str = "text/html") -> Callable[..., Any]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type=kind)
    return answer


async def cuts(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cuts_in_the_middle(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": "100"})
    await answer.prepare(request)
    await answer.write(b'{"id":')
    assert request.transport is not None
    request.transport.abort()
    return answer


async def sends_elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("ftp://elsewhere/\x7f")


class Answers(AtAServer):
    """`answers` has the requests, `stream` the stream, which is there all the time."""

    async def serve_answers(self, answer: Callable[..., Any]) -> str:
        self.requests: list[str] = []

        async def stream(request: web.Request) -> web.StreamResponse:
            opened = await ndjson(request)
            await opened.write(line(1))
            await asyncio.sleep(WAIT_S)
            return opened

        async def noting(request: web.Request) -> web.StreamResponse:
            self.requests.append(request.path)
            result: web.StreamResponse = await answer(request)
            return result

        app = web.Application()
        app.router.add_get("/v1/stream", stream)
        app.router.add_route("*", "/{any:.*}", noting)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.addAsyncCleanup(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def test_whatever_is_answered_is_a_halley_error(self) -> None:
        cases = {
            "a page": says(b"<html>log in first</html>"), "nothing": says(b""),
            "another JSON": says(b"[1]"), "JSON without what belongs": says(b"{}"),
            "no UTF-8": says(b"\xff\xfe{"), "a page of 400": says(b"\xff<html>", 400),
            "an error that is none": says(b'{"error":7}', 400, "application/json"),
            "a cut": cuts, "a cut in the middle": cuts_in_the_middle,
            "a way to nowhere": sends_elsewhere,
        }
        for name, answer in cases.items():
            url = await self.serve_answers(answer)
            async with halley.connect(url, user="b", transports=["ndjson"], timeout=0.4) as client:
                await client.opened()
                for number, call in enumerate(CALLS):
                    if (name, number) in MAY_BE:
                        continue
                    with self.subTest(f"{name}, {number}"):
                        with self.assertRaises(halley.HalleyError) as caught:
                            async with asyncio.timeout(WAIT_S):
                                await call(client)
                        self.assertIn(caught.exception.code, ("http", "unreachable", "timeout"))

    async def test_nobody_there(self) -> None:
        async with halley.connect("http://127.0.0.1:1", user="b", timeout=0.5) as client:
            for number, call in enumerate(CALLS):
                with self.subTest(number), self.assertRaises(halley.HalleyError) as caught:
                    async with asyncio.timeout(WAIT_S):
                        await call(client)
                self.assertIn(caught.exception.code, ("unreachable", "timeout"))

    async def test_one_that_hangs_is_repeated(self) -> None:
        """Long before its time is over; without an answer it ends in time."""
        async def answer(request: web.Request) -> web.StreamResponse:
            if len(self.requests) == 1:
                return await hangs(request)
            return web.json_response({"id": (await request.json())["id"]})

        with patch.object(requests, "ANSWER_S", 0.3):
            url = await self.serve_answers(answer)
            async with halley.connect(url, user="b", transports=["ndjson"]) as client:
                async with asyncio.timeout(WAIT_S):
                    self.assertEqual(await client.publish("a", 1, id="i"), halley.Published("i"))
            self.assertEqual(len(self.requests), 2)
            url = await self.serve_answers(hangs)
            async with halley.connect(url, user="b", transports=["ndjson"], timeout=1.0) as client:
                with self.assertRaises(halley.HalleyError) as caught:
                    async with asyncio.timeout(WAIT_S):
                        await client.publish("a", 1)
                self.assertEqual(caught.exception.code, "unreachable")

    async def test_a_long_body_has_its_time(self) -> None:
        """What is still being sent hangs not."""
        async def slow(request: web.Request) -> web.StreamResponse:
            length = 0
            while data := await request.content.read(64 * 1024):
                length += len(data)
                await asyncio.sleep(0.02)
            return web.json_response({"id": str(length > 3_000_000)})

        with patch.object(requests, "ANSWER_S", 0.5):
            url = await self.serve_answers(slow)
            async with halley.connect(url, user="b", transports=["ndjson"]) as client:
                async with asyncio.timeout(WAIT_S):
                    self.assertEqual((await client.publish("a", "x" * 3_000_000)).id, "True")
        self.assertEqual(len(self.requests), 1)

    async def test_close_ends_what_waits_for_an_answer(self) -> None:
        url = await self.serve_answers(hangs)
        client = halley.connect(url, user="b", transports=["ndjson"])
        async with client:
            await client.opened()
            tasks = [asyncio.ensure_future(call(client)) for call in CALLS]
            while len(self.requests) < len(CALLS) - 1:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(WAIT_S):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            assert isinstance(result, halley.HalleyError), result
            self.assertEqual(result.code, "closed")

    async def test_a_cancelled_close_closes(self) -> None:
        url = await self.serve_answers(hangs)
        client = await halley.connect(url, user="b", transports=["ndjson"]).__aenter__()
        await client.opened()
        task = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertTrue(client._http.closed)
        self.assertEqual(client.state, "closed")
        while client._connection.tasks:
            await asyncio.sleep(0.01)

    async def test_an_operation_that_cant_be_sent_has_its_time_too(self) -> None:
        async def websocket(request: web.Request) -> web.StreamResponse:
            return await converse(request, [{"cursor": "c0"}], lambda _: None)

        async def stuck(text: str) -> None:
            await asyncio.sleep(WAIT_S)

        url = await self.serve(ndjson, websocket=websocket)
        async with halley.connect(
            url, user="b", transports=["websocket"], timeout=0.3,
        ) as client:
            await client.opened()
            place = client._connection.place
            assert place is not None and place.socket is not None
            with patch.object(place.socket, "send_str", stuck):
                for call in (client.subscribe("a"), client.say(1), client.subscribe("b", last=3)):
                    with self.assertRaises(halley.HalleyError) as caught:
                        async with asyncio.timeout(WAIT_S / 2):
                            await call
                    self.assertEqual(caught.exception.code, "timeout")


if __name__ == "__main__":
    unittest.main()
