"""Any JSON that a server passes on is delivered, by each transport, and ends no connection."""

from __future__ import annotations

import asyncio
import unittest
from decimal import Decimal
from typing import Any

import halley
from aiohttp import web
from halley.reading import loads
from halley.transports import TRANSPORTS
from small_server import WAIT_S, AtAServer, ndjson

DIGITS = "9" * 5_000
DEEP = 5_000
#: As it is published, and what is given.
PASSED_ON: list[tuple[str, Any]] = [
    (DIGITS, Decimal(DIGITS)),
    (f"-{DIGITS}", Decimal(f"-{DIGITS}")),
    (f'{{"n": [1, {DIGITS}]}}', {"n": [1, Decimal(DIGITS)]}),
    ("9" * 4_000, int("9" * 4_000)),
    ("1e999", Decimal("1e999")),
    ("-1E+400", Decimal("-1e400")),
    (f"1e{DIGITS}", float("inf")),
    ("1e-999", 0.0),
    ("-0", 0),
    ("-0.0", -0.0),
    ("0.1", 0.1),
    (r'"\ud800"', "\ud800"),
    (r'"\ud83d\ude00"', "\U0001f600"),
    (r'"\udc00\ud800"', "\udc00\ud800"),
    (r'"a\u0000b"', "a\0b"),
    ('"\u2028\ufeff\u0085"', "\u2028\ufeff\u0085"),
    ('{"a": 1, "a": 2}', {"a": 2}),
    ('{"": {"cursor": "no", "id": "no"}}', {"": {"cursor": "no", "id": "no"}}),
    ("null", None),
    ("[]", []),
    ('"' + "x" * 60_000 + '"', "x" * 60_000),
]


def depth_of(data: Any) -> int:
    depth = 0
    while data:
        data, depth = (data[0] if isinstance(data, list) else data["k"]), depth + 1
    return depth


NESTED = [
    "[" * DEEP + "]" * DEEP,
    '{"k":' * DEEP + "[]" + "}" * DEEP,
    '{"k" : [ ' * DEEP + f"{DIGITS}".join("[]") + " ] } " * DEEP,
]


class Reading(unittest.TestCase):
    def test_values(self) -> None:
        for text, value in PASSED_ON:
            with self.subTest(text[:30]):
                read = loads(text)
                self.assertEqual((read, type(read)), (value, type(value)))

    def test_what_nests_deeper_than_python_recurses(self) -> None:
        self.assertEqual([depth_of(loads(text)) for text in NESTED[:2]], [DEEP - 1, DEEP])
        # Beside it all else is what the plain reader makes of it.
        for text, value in PASSED_ON:
            data = loads(f'{{"deep": {NESTED[0]}, "list" : [ 1 , {text} ],\n"o":{{"v":{text}}}}}')
            with self.subTest(text[:30]):
                self.assertEqual((data["list"], data["o"]), ([1, value], {"v": value}))

    def test_what_is_no_json(self) -> None:
        for text in ("", "[", "[1,]", "[1 2]", '{"a"}', '{"a":}', '{a:1}', '{"a":1,}', "1 2", "]",
                     '"', "nul", "--1", '["\\ud8"]', f"{DIGITS} x", "{1:2}"):
            for broken in (text, f"[{NESTED[0]},{text}", f"[{NESTED[0]}{text}]]"):
                with self.subTest(broken[-20:]), self.assertRaises(ValueError):
                    loads(broken)


class Delivered(AtAServer):
    """Each is an event's data on the wire."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.opened = 0
        self.texts = [text for text, _ in PASSED_ON] + NESTED
        self.events = [
            f'{{"id":"e{n}","subject":"ann","at":{n},"data":{text},"cursor":"c{n}"}}'
            for n, text in enumerate([*self.texts, '"last"'])]

    async def websocket(self, request: web.Request) -> web.StreamResponse:
        self.opened += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for event in self.events:
            await socket.send_str(event)
        async for _ in socket:
            pass
        return socket

    async def stream(self, request: web.Request) -> web.StreamResponse:
        self.opened += 1
        if request.headers["Accept"] == "application/x-ndjson":
            answer = await ndjson(request)
            for event in self.events:
                await answer.write(event.encode() + b"\n")
        else:
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            for n, event in enumerate(self.events):
                await answer.write(f"id: c{n}\ndata: {event}\n\n".encode())
        await asyncio.sleep(WAIT_S)
        return answer

    async def may(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("cursor"):
            await asyncio.sleep(WAIT_S)
        self.opened += 1
        body = f'{{"events":[{",".join(self.events)}],"cursor":"c9"}}'
        return web.Response(text=body, content_type="application/json")

    async def test_by_each_transport(self) -> None:
        url = await self.serve(self.stream, websocket=self.websocket)
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.opened = 0
                async with halley.connect(url, user="b", transports=[transport]) as client:
                    given = []
                    async with asyncio.timeout(WAIT_S):
                        async for item in client.events():
                            assert isinstance(item, halley.Event)
                            given.append(item.data)
                            if item.data == "last":
                                break
                self.assertEqual(given[:len(PASSED_ON)], [value for _, value in PASSED_ON])
                self.assertEqual(len(given), len(self.events))
                self.assertEqual(self.opened, 1)


if __name__ == "__main__":
    unittest.main()
