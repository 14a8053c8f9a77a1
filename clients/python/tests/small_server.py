"""A small server of aiohttp's, for tests of the client around the machine."""

from __future__ import annotations

import asyncio
import json
import logging
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Operation = dict[str, Any]
WAIT_S = 60.0


def line(n: int) -> bytes:
    event = {"cursor": f"c{n}", "id": f"e{n}", "subject": "ann", "at": n, "data": n}
    return json.dumps(event).encode() + b"\n"


async def ndjson(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await stream.prepare(request)
    return stream


async def converse(
    request: web.Request, welcome: list[object], answer: Callable[[Operation], Operation | None],
) -> web.WebSocketResponse:
    """Sends the welcome, answers each operation, and hangs up at one that gets no answer."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    for message in welcome:
        await socket.send_json(message)
    async for received in socket:
        operation = json.loads(received.data)
        answered = answer(operation)
        if answered is None:
            break
        await socket.send_json({"ref": operation["ref"], **answered})
    return socket


def refused(code: str) -> Operation:
    return {"error": {"code": code, "message": "no"}}


class AtAServer(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)
        logging.disable()  # of aiohttp's server: clients that leave are no news
        self.addCleanup(logging.disable, logging.NOTSET)

    async def serve(
        self, stream: Handler, publish: Handler | None = None, websocket: Handler | None = None,
    ) -> str:
        app = web.Application()
        app.router.add_get("/v1/stream", stream)
        app.router.add_get("/v1/poll", self.may)
        if websocket is not None:
            app.router.add_get("/v1/ws", websocket)
        if publish is not None:
            app.router.add_post("/v1/me/events", publish)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.addAsyncCleanup(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def may(self, request: web.Request) -> web.StreamResponse:
        """Whether a stream may say the same; `secret` it may not."""
        self.assertEqual(request.query["timeout"], "0")
        if "secret" in request.query.getall("subject", []):
            return web.json_response(refused("right_missing"), status=403)
        return web.json_response({"events": [], "cursor": "nobody-goes-on-from-here"})
