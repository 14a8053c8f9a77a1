"""`subscribe` with `last`: older events come first, each event once (http.md 25)."""

from __future__ import annotations

import asyncio
import json
import unittest
from typing import Any

import halley
from aiohttp import web
from halley.newest import HELD_MAX, Held
from small_server import WAIT_S, AtAServer, line, ndjson, refused


def event(n: int, subject: str = "a") -> dict[str, Any]:
    return {"id": f"e{n}", "subject": subject, "at": n, "data": n}


async def data_of(client: halley.Client, count: int) -> list[Any]:
    found: list[Any] = []
    async for item in client.events():
        assert not isinstance(item, halley.Presence)
        found.append(item.reason if isinstance(item, halley.Gap) else item.data)
        if len(found) == count:
            break
    return found


class Newest(AtAServer):
    async def test_in_band(self) -> None:
        """What is live and comes before the answer is held; what is in both is there once."""
        said: list[tuple[str, Any]] = []

        async def websocket(request: web.Request) -> web.StreamResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_json({"cursor": "c0"})
            async for received in socket:
                operation = json.loads(received.data)
                said.append((operation["subject"], operation.get("last")))
                if operation["subject"] == "secret":
                    await socket.send_json({"ref": operation["ref"]} | refused("right_missing"))
                    continue
                if said.count(("lost", 3)) == 1 and operation["subject"] == "lost":
                    await socket.send_json({"cursor": "never"} | event(99))
                    break
                for n in (3, 4):
                    await socket.send_json({"cursor": f"c{n}"} | event(n))
                await socket.send_json({"cursor": "c5"})
                ok = {"added": 1, "already": 0, "events": [event(n) for n in (1, 2, 3)],
                      "gaps": [{"from": 1, "to": 2, "reason": "damaged"}]}
                await socket.send_json({"ref": operation["ref"], "ok": ok})
            return socket

        cursors: list[str | None] = []

        async def noting(request: web.Request) -> web.StreamResponse:
            cursors.append(request.query.get("cursor"))
            return await websocket(request)

        url = await self.serve(ndjson, websocket=noting)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            async with asyncio.timeout(WAIT_S):
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.subscribe("secret", last=3)
                self.assertEqual(caught.exception.code, "right_missing")
                await client.subscribe("a", last=3)
                self.assertEqual(await data_of(client, 5), ["damaged", 1, 2, 3, 4])
                await client.subscribe("lost", last=3)
                self.assertEqual(await data_of(client, 1), ["damaged"])
        self.assertEqual(said, [("secret", 3), ("a", 3), ("lost", 3), ("lost", 3)])
        # What was held of the connection that was lost is behind its cursor.
        self.assertEqual(cursors, [None, "c5"])

    async def test_by_polls(self) -> None:
        """Until all are there: one poll brings what is sent in one go."""
        polls: list[dict[str, str]] = []
        opened: list[tuple[list[str], str | None]] = []

        async def stream(request: web.Request) -> web.StreamResponse:
            opened.append((request.query.getall("subject", []), request.query.get("cursor")))
            response = await ndjson(request)
            await response.write(b'{"cursor":"c0"}\n' if len(opened) == 1 else line(7))
            await asyncio.sleep(WAIT_S)
            return response

        # http.md 11.5: with `more` there is more, even where there are no events.
        answers = {None: ([], "p0", True), "p0": ([], "p1", True),
                   "p1": ([event(1), event(2)], "p2", True),
                   "p2": ([event(3), event(8, "other")], "p3", False)}

        async def poll(request: web.Request) -> web.StreamResponse:
            polls.append(dict(request.query))
            if "last" not in request.query and "cursor" not in request.query:
                return web.json_response({"events": [], "cursor": "c0"})
            events, cursor, more = answers[request.query.get("cursor")]
            return web.json_response({"events": events, "cursor": cursor}
                                     | ({"more": True} if more else {}))

        self.may = poll  # type: ignore[method-assign]
        url = await self.serve(stream)
        async with halley.connect(url, user="b", transports=["ndjson"]) as client:
            async with asyncio.timeout(WAIT_S):
                await client.subscribe("a", last=20)
                self.assertEqual(await data_of(client, 4), [1, 2, 3, 7])
        self.assertEqual([poll.get("last", poll.get("cursor")) for poll in polls],
                         ["20", "p0", "p1", "p2", None])
        self.assertEqual(opened, [([], None), (["a"], "c0")])


class HeldMessages(unittest.TestCase):
    def test_bound(self) -> None:
        """Beyond it nothing is held, and nothing overtakes what was."""
        held = Held()
        held.begin("r1")
        shown = [message for n in range(HELD_MAX + 2) for message in held.passes(event(n))]
        self.assertEqual([message["data"] for message in shown], [*range(HELD_MAX + 2)])
        self.assertEqual(held.answered("r1", {"ok": {"events": [event(1)]}}), [])

    def test_several(self) -> None:
        """What is live waits for the last answer; the end of a session doesn't."""
        held = Held()
        held.begin("r1")
        held.begin("r2")
        self.assertEqual(held.passes(event(9)), [])
        self.assertEqual(held.answered("r1", {"ok": {"events": [event(1)]}}), [event(1)])
        self.assertEqual(held.passes({"end": {"reason": "token_expired"}}),
                         [{"end": {"reason": "token_expired"}}])
        self.assertEqual(held.answered("r2", None), [event(9)])
        self.assertEqual(held.passes(event(10)), [event(10)])
