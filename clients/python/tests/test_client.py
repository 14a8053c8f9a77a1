"""The client around the machine, at a small server of aiohttp's: queues, callbacks, the end."""

from __future__ import annotations

import asyncio
import json
import logging
import unittest
from collections.abc import Awaitable, Callable

import halley
from aiohttp import web
from halley.client import EVENTS_MAX

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
WAIT_S = 20.0


def line(n: int) -> bytes:
    event = {"cursor": f"c{n}", "id": f"e{n}", "subject": "ann", "at": n, "data": n}
    return json.dumps(event).encode() + b"\n"


async def ndjson(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await stream.prepare(request)
    return stream


class AtAServer(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)
        logging.disable()  # of aiohttp's server: clients that leave are no news
        self.addCleanup(logging.disable, logging.NOTSET)

    async def serve(self, stream: Handler, publish: Handler | None = None) -> str:
        app = web.Application()
        app.router.add_get("/v1/stream", stream)
        if publish is not None:
            app.router.add_post("/v1/me/events", publish)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.addAsyncCleanup(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def test_a_slow_user_is_not_read_for_and_not_silent(self) -> None:
        written, visits = 0, 0

        async def stream(request: web.Request) -> web.StreamResponse:
            nonlocal written, visits
            visits += 1
            answer = await ndjson(request)
            for n in range(20 * EVENTS_MAX):
                await answer.write(line(n)[:-2] + b', "more": "' + b"x" * 2_000 + b'"}\n')
                written = n
            await asyncio.sleep(WAIT_S)
            return answer

        url = await self.serve(stream)
        async with halley.connect(url, user="b", transports=["ndjson"], silence=0.6) as client:
            await client.opened()
            await asyncio.sleep(1.5)
            self.assertLess(written, 15 * EVENTS_MAX)
            self.assertLessEqual(len(client._items), EVENTS_MAX + 1_000)
            self.assertEqual((client.state, client.cursor, visits), ("open", None, 1))
            seen = []
            async for item in client.events():
                assert isinstance(item, halley.Event)
                seen.append(item.at)
                if len(seen) == 10 * EVENTS_MAX:
                    break
            self.assertEqual(seen, list(range(10 * EVENTS_MAX)))
            self.assertEqual(client.cursor, f"c{seen[-1]}")

    async def test_who_publishes_in_its_own_loop_waits_for_nothing(self) -> None:
        async def stream(request: web.Request) -> web.StreamResponse:
            answer = await ndjson(request)
            for n in range(3 * EVENTS_MAX):
                await answer.write(line(n))
            await asyncio.sleep(WAIT_S)
            return answer

        async def publish(request: web.Request) -> web.StreamResponse:
            return web.json_response({"id": (await request.json())["id"]})

        url = await self.serve(stream, publish)
        async with halley.connect(url, user="b", transports=["ndjson"]) as client:
            async with asyncio.timeout(WAIT_S):
                async for _ in client.events():
                    answer = await client.publish("ann", 1, id="mine")
                    self.assertEqual(answer, halley.Published("mine"))
                    break

    async def test_callbacks_that_fail_end_nothing(self) -> None:
        async def stream(request: web.Request) -> web.StreamResponse:
            self.assertEqual(request.headers["Authorization"], "Bearer good")
            answer = await ndjson(request)
            await answer.write(line(1))
            await asyncio.sleep(WAIT_S)
            return answer

        asked = 0

        async def token() -> str:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise OSError("the server of tokens is away")
            return "good"

        def on_state(state: str, why: halley.HalleyError | None) -> None:
            states.append((state, why.code if why else None))
            raise ValueError("a mistake of somebody else's")

        states: list[tuple[str, str | None]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        url = await self.serve(stream)
        async with halley.connect(
            url, token=token, transports=["ndjson"], on_state=on_state,
        ) as client:
            async with asyncio.timeout(WAIT_S):
                item = await anext(client.events())
            self.assertEqual(item, halley.Event("e1", "ann", 1, 1))
        self.assertEqual(states, [
            ("connecting", "token_callback"), ("open", None), ("closed", None)])

    async def test_refused_for_good_is_raised_and_close_is_an_end(self) -> None:
        async def stream(request: web.Request) -> web.StreamResponse:
            body = {"error": {"code": "other_user", "message": "no"}}
            return web.json_response(body, status=403)

        url = await self.serve(stream)
        async with halley.connect(url, user="b", transports=["ndjson"]) as client:
            for wait in (client.opened(), anext(client.events())):
                with self.assertRaises(halley.HalleyError) as caught:
                    await wait
                self.assertEqual((caught.exception.code, caught.exception.status),
                                 ("other_user", 403))
        async with halley.connect("http://127.0.0.1:1", user="b") as client:
            async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
                group.create_task(self.close_soon(client))
                self.assertEqual([item async for item in client.events()], [])
        self.assertEqual(client._tasks, set())

    async def close_soon(self, client: halley.Client) -> None:
        await asyncio.sleep(0.1)
        await client.close()


if __name__ == "__main__":
    unittest.main()
