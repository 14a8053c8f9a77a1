"""The client around the machine, at a small server of aiohttp's: queues, callbacks, the end."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable
from contextlib import suppress

import halley
from aiohttp import web
from halley.connection import EVENTS_MAX, SENT_MAX
from small_server import WAIT_S, AtAServer, Operation, converse, line, ndjson, refused


class AClient(AtAServer):
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
        async with halley.connect(url, user="b", transports=["ndjson"], silence=2.0) as client:
            await client.opened()
            await asyncio.sleep(5.0)
            self.assertLess(written, 15 * EVENTS_MAX)
            self.assertLessEqual(len(client._connection.items), EVENTS_MAX + 1_000)
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
        self.assertEqual(client._connection.tasks, set())

    async def test_subscriptions_by_another_stream(self) -> None:
        said = []

        async def stream(request: web.Request) -> web.StreamResponse:
            said.append((request.query.getall("subject", []), request.query.get("cursor")))
            answer = await ndjson(request)
            await answer.write(line(len(said)))
            await asyncio.sleep(WAIT_S)
            return answer

        url = await self.serve(stream)
        async with halley.connect(url, transports=["ndjson"], subjects=["a,b"]) as client:
            async with asyncio.timeout(WAIT_S):
                await anext(client.events())
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.subscribe("secret")
                self.assertEqual(caught.exception.code, "right_missing")
                await client.subscribe("c", "a,b")
                await anext(client.events())
                await client.unsubscribe("a,b", "never")
                await anext(client.events())
                await client.subscribe("c")
            self.assertEqual(client.state, "open")
        self.assertEqual(said, [(["a,b"], None), (["a,b", "c"], "c1"), (["c"], "c2")])

    async def serve_in_band(self, answer: Callable[[Operation], Operation | None]) -> str:
        async def websocket(request: web.Request) -> web.StreamResponse:
            return await converse(request, [{"cursor": "c0"}], answer)

        return await self.serve(ndjson, websocket=websocket)

    async def test_subscriptions_in_band(self) -> None:
        said: list[tuple[str, str]] = []
        opened = []

        def answer(operation: Operation) -> Operation | None:
            said.append((operation["op"], operation["subject"]))
            match operation["subject"]:
                case "lost" if said.count(said[-1]) == 1:
                    return None
                case "secret":
                    return refused("right_missing")
                case _:
                    return {"ok": {"added": 1, "already": 0}}

        async def websocket(request: web.Request) -> web.StreamResponse:
            opened.append(request.query.getall("subject", []))
            return await converse(request, [{"cursor": "c0"}], answer)

        url = await self.serve(ndjson, websocket=websocket)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            async with asyncio.timeout(WAIT_S):
                await client.opened()
                await client.subscribe("a", "b")
                await client.unsubscribe("a")
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.subscribe("secret")
                self.assertEqual(caught.exception.code, "right_missing")
                await client.subscribe("lost")
        self.assertEqual(said, [("subscribe", "a"), ("subscribe", "b"), ("unsubscribe", "a"),
                                ("subscribe", "secret"), ("subscribe", "lost"),
                                ("subscribe", "lost")])
        self.assertEqual(opened, [[], ["b"]], "no opening says what was never granted")

    async def test_no_more_is_sent_than_may_wait(self) -> None:
        """http.md 18.4: one operation beyond `operations_waiting_max` is refused."""
        waiting: list[str] = []
        most = 0

        async def websocket(request: web.Request) -> web.StreamResponse:
            nonlocal most
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_json({"cursor": "c0"})
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        while (received := await socket.receive()).type == web.WSMsgType.TEXT:
                            waiting.append(received.json()["ref"])
                            most = max(most, len(waiting))
                        return socket
                while waiting:
                    await socket.send_json({"ref": waiting.pop(0), "ok": {}})

        url = await self.serve(ndjson, websocket=websocket)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            async with asyncio.timeout(WAIT_S):
                await client.subscribe(*(f"room/{n}" for n in range(100)))
        self.assertEqual(most, SENT_MAX)

    async def test_what_was_refused_can_be_said_again(self) -> None:
        said: list[tuple[str, str]] = []

        def answer(operation: Operation) -> Operation:
            said.append((operation["op"], operation["subject"]))
            is_first = said.count(said[-1]) == 1
            return refused("brain_away") if operation["subject"] == "late" and is_first else {}

        url = await self.serve_in_band(answer)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            async with asyncio.timeout(WAIT_S):
                await client.opened()
                for change in [client.subscribe, client.unsubscribe]:
                    with self.assertRaises(halley.HalleyError):
                        await change("late", "good")
                    await change("good")
                    await change("late")
        self.assertEqual(said, [(op, subject) for op in ["subscribe", "unsubscribe"]
                                for subject in ["late", "good", "late"]])

    async def test_what_is_said_is_said_again(self) -> None:
        said: list[object] = []

        def answer(operation: Operation) -> Operation | None:
            self.assertEqual(operation["op"], "state")
            said.append(operation["data"])
            if operation["data"] == "lost" and said.count("lost") == 1:
                return None
            return refused("state_too_large") if operation["data"] == "long" else {"ok": {}}

        url = await self.serve_in_band(answer)
        async with halley.connect(url, user="b", transports=["websocket"]) as client:
            async with asyncio.timeout(WAIT_S):
                await client.opened()
                await client.say({"is": "busy"})
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.say("long")
                self.assertEqual(caught.exception.code, "state_too_large")
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.say("x" * 70_000)
                self.assertEqual(caught.exception.code, "state_too_large")
                self.assertEqual(client._state, {"is": "busy"}, "what is said again")
                await client.say("lost")
                while said.count("lost") < 2:
                    await asyncio.sleep(0.05)
                await client.say(None)
        self.assertEqual(said, [{"is": "busy"}, "long", "lost", "lost", None])

    async def test_presence_is_no_event_and_what_was_refused_is_not_said_again(self) -> None:
        asked: list[str | None] = []

        def answer(operation: Operation) -> Operation | None:
            if operation["presence"] == "lost":
                return None if len(asked) == 1 else {"ok": {"added": 1, "already": 0}}
            return refused("presence_off")

        async def websocket(request: web.Request) -> web.StreamResponse:
            asked.append(request.query.get("presence"))
            return await converse(request, [
                {"cursor": f"c{len(asked)}"},
                {"presence": {"subject": "a", "online": 1, "users": ["u"]}},
                {"presence": {"subject": "a", "user": "v", "state": "join"}},
            ], answer)

        url = await self.serve(ndjson, websocket=websocket)
        async with halley.connect(
            url, user="b", transports=["websocket"], presence=["a"],
        ) as client:
            async with asyncio.timeout(WAIT_S):
                events = client.events()
                told = [await anext(events), await anext(events)]
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.watch("secret")
                self.assertEqual(caught.exception.code, "presence_off")
                await client.watch("lost")
            self.assertEqual(told, [halley.Presence("a", 1, ("u",)),
                                    halley.Presence("a", user="v", state="join")])
            self.assertIsNone(client.cursor, "it moves none")
        self.assertEqual(asked, ["a", "a"])

    async def test_what_the_server_has_ended_is_not_said_again(self) -> None:
        asked: list[tuple[str | None, list[str]]] = []
        ended = {"reason": "right_missing", "subjects": ["theirs"], "presence": ["theirs"]}

        async def websocket(request: web.Request) -> web.StreamResponse:
            asked.append((request.query.get("presence"), request.query.getall("subject", [])))
            if len(asked) == 1:
                socket = web.WebSocketResponse()
                await socket.prepare(request)
                await socket.send_json({"cursor": "c1"})
                await socket.send_json({"ended": ended})
                await socket.close()
                return socket
            return await converse(request, [{"cursor": "c2"}], lambda _: None)

        told: list[str] = []
        url = await self.serve(ndjson, websocket=websocket)
        async with halley.connect(
            url, user="b", transports=["websocket"], subjects=["theirs", "yours"],
            presence=["theirs", "yours"],
            on_state=lambda _, why: told.append(why.code) if why else None,
        ):
            async with asyncio.timeout(WAIT_S):
                while len(asked) < 2:
                    await asyncio.sleep(0.05)
        self.assertEqual(asked, [("theirs,yours", ["theirs", "yours"]), ("yours", ["yours"])])
        self.assertIn("right_missing", told)

    async def close_soon(self, client: halley.Client) -> None:
        await asyncio.sleep(0.1)
        await client.close()


if __name__ == "__main__":
    unittest.main()
