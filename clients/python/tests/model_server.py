"""A server that keeps the promises of http.md 10 and 21 over a network that is slow and breaks.

It has one log. A session without a cursor begins at the log's end, one with a cursor after that
cursor. Its messages arrive in order, each up to `latency_s` late; a request waits as long before it
takes effect, and so does its answer. `cut` breaks connections.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Session:
    """What one connection is sent: `queue` in order, None at its end."""

    def __init__(self, subjects: set[str], queue_max: int = 0) -> None:
        self.subjects = subjects
        self.queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(queue_max)


class ModelServer:
    def __init__(self, chance: random.Random, latency_s: float) -> None:
        self._chance = chance
        self._latency_s = latency_s
        self._log: list[str] = []
        self._sessions: set[Session] = set()

    async def start(self) -> tuple[str, web.AppRunner]:
        app = web.Application()
        app.router.add_get("/v1/ws", self._websocket)
        app.router.add_get("/v1/stream", self._stream)
        app.router.add_get("/v1/poll", self._poll)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}", runner

    @property
    def now(self) -> int:
        """How many events there are."""
        return len(self._log)

    def publish(self, subject: str) -> int:
        """The event's place in the log, which is its data as well."""
        self._log.append(subject)
        for session in self._sessions:
            if subject in session.subjects:
                session.queue.put_nowait(self._event(self.now - 1))
        return self.now - 1

    def end(self, subject: str, reason: str) -> None:
        """The subscription alone; http.md 21.9."""
        for session in self._sessions:
            if subject in session.subjects:
                session.subjects.discard(subject)
                session.queue.put_nowait({"ended": {"reason": reason, "subjects": [subject]}})

    def cut(self) -> None:
        for session in self._sessions:
            session.queue.put_nowait(None)
        self._sessions.clear()

    def _event(self, place: int) -> dict[str, Any]:
        return {"cursor": str(place + 1), "id": f"e{place}", "subject": self._log[place],
                "at": place, "data": place}

    async def _late(self) -> None:
        await asyncio.sleep(self._chance.random() * self._latency_s)

    def _open(self, request: web.Request) -> Session:
        session = Session(set(request.query.getall("subject", [])))
        cursor = request.query.get("cursor")
        session.queue.put_nowait({"cursor": str(self.now) if cursor is None else cursor})
        for place in range(self.now if cursor is None else int(cursor), self.now):
            if self._log[place] in session.subjects:
                session.queue.put_nowait(self._event(place))
        self._sessions.add(session)
        return session

    async def _write(self, session: Session, send: Send) -> None:
        while (message := await session.queue.get()) is not None:
            await self._late()
            await send(message)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        await self._late()
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        session = self._open(request)

        async def send(message: dict[str, Any]) -> None:
            await answer.write(json.dumps(message).encode() + b"\n")

        try:
            await self._write(session, send)
        except ConnectionError:
            pass  # the client has left
        finally:
            self._sessions.discard(session)
        return answer

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        await self._late()
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        session = self._open(request)
        writer = asyncio.create_task(self._write(session, socket.send_json))
        writer.add_done_callback(lambda _: asyncio.ensure_future(socket.close()))
        try:
            async for received in socket:
                operation = json.loads(received.data)
                await self._late()
                match operation["op"]:
                    case "subscribe":
                        session.subjects.add(operation["subject"])
                    case "unsubscribe":
                        session.subjects.discard(operation["subject"])
                session.queue.put_nowait({"ref": operation["ref"], "ok": {}})
        finally:
            self._sessions.discard(session)
            session.queue.put_nowait(None)
            writer.cancel()
        return socket

    async def _poll(self, request: web.Request) -> web.StreamResponse:
        """Whether a stream may say the same: it may."""
        await self._late()
        return web.json_response({"events": [], "cursor": str(self.now)})
