"""Tokens that don't fit into a header, and callbacks that misbehave."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any
from unittest.mock import patch

import halley
from aiohttp import web
from halley import machine, tokens
from small_server import WAIT_S, AtAServer, line, ndjson

BAD = ["a\n", "\na", "a\nb", "a\r\nX-Other: 1", "a b", "ä", "a\0", "\ud800"]


class Callbacks(AtAServer):
    """Each of `answers` in turn is what a callback does; then it gives `good`."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.shown: list[str | None] = []
        self.asked = 0
        self.told: list[tuple[str, str | None]] = []
        self.failures: list[BaseException] = []
        for module, name, value in ((machine, "WAIT_S", 0.05), (tokens, "ASK_S", 0.2)):
            patcher = patch.object(module, name, value)
            patcher.start()
            self.addCleanup(patcher.stop)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.failures.append(context["exception"]))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        self.shown.append(request.headers.get("Authorization"))
        answer = await ndjson(request)
        await answer.write(line(1))
        await asyncio.sleep(WAIT_S)
        return answer

    async def publish(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"id": request.headers.get("Authorization", "nobody")})

    async def token(self) -> Any:
        self.asked += 1
        if self.asked > 1:
            return "good"
        match self.does:
            case "raises":
                raise OSError("the server of tokens is away")
            case "gives a number":
                return 7
            case "gives bytes":
                return b"good"
            case "is cancelled":
                raise asyncio.CancelledError
            case "never settles":
                await asyncio.Event().wait()
            case "can't be cancelled":
                while not self.is_over:
                    try:
                        await asyncio.sleep(1.0)
                    except asyncio.CancelledError:
                        continue
            case bad:
                return bad

    async def test_a_failure_is_told_and_the_callback_asked_again(self) -> None:
        url = await self.serve(self.stream, self.publish)
        for does in ["raises", "gives a number", "gives bytes", "is cancelled", "never settles",
                     "can't be cancelled", *BAD]:
            with self.subTest(does):
                await self.fails(url, does)

    async def fails(self, url: str, does: str) -> None:
        self.does, self.asked, self.is_over = does, 0, False
        self.told.clear()
        self.shown.clear()
        self.failures.clear()
        whys: list[halley.HalleyError] = []

        def on_state(state: str, why: halley.HalleyError | None) -> None:
            self.told.append((state, why.code if why else None))
            whys.extend([why] if why else [])

        async with halley.connect(
            url, token=self.token, transports=["ndjson"], on_state=on_state,
        ) as client:
            async with asyncio.timeout(WAIT_S):
                await anext(client.events())
            self.is_over = True
        self.assertEqual(self.shown, ["Bearer good"])
        self.assertEqual(self.told[:2], [("connecting", "token_callback"), ("open", None)])
        self.assertTrue(whys[0].message)
        is_its_own = does not in ("is cancelled", "never settles", "can't be cancelled")
        self.assertEqual(len(self.failures), is_its_own, "where it is can be seen")

    async def test_who_publishes_hears_of_it(self) -> None:
        url = await self.serve(self.stream, self.publish)
        for does in ["raises", "gives a number", "is cancelled", "never settles", "a\nb"]:
            with self.subTest(does):
                self.does, self.asked = does, 1
                async with halley.connect(url, token=self.token, transports=["ndjson"]) as client:
                    async with asyncio.timeout(WAIT_S):
                        await client.opened()
                        client._keeper.current, self.asked = None, 0
                        with self.assertRaises(halley.HalleyError) as caught:
                            await client.publish("a", 1)
                        self.assertEqual(caught.exception.code, "token_callback")
                        self.assertEqual(await client.publish("a", 1),
                                         halley.Published("Bearer good"))

    async def test_a_request_waits_no_longer_for_it_than_for_an_answer(self) -> None:
        url = await self.serve(self.stream, self.publish)
        self.does, self.asked = "never settles", 1
        with patch.object(tokens, "ASK_S", 10 * WAIT_S):
            async with (
                asyncio.timeout(WAIT_S),
                halley.connect(url, token=self.token, transports=["ndjson"], timeout=0.3) as client,
            ):
                await client.opened()
                client._keeper.current, self.asked = None, 0
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.publish("a", 1)
                self.assertEqual(caught.exception.code, "token_callback")

    async def test_none_is_signed_out(self) -> None:
        url = await self.serve(self.stream)
        async with halley.connect(url, token=lambda: None, transports=["ndjson"]) as client:
            async with asyncio.timeout(WAIT_S):
                with self.assertRaises(halley.HalleyError) as caught:
                    await client.opened()
        self.assertEqual(caught.exception.code, "signed_out")
        self.assertEqual(self.shown, [])

    async def test_one_that_no_header_carries_is_refused_at_once(self) -> None:
        for text in [*BAD, ""]:
            with self.subTest(repr(text)):
                with self.assertRaisesRegex(ValueError, "^token "):
                    halley.connect("http://h", token=text)
                with self.assertRaisesRegex(ValueError, "^key "):
                    halley.server("http://h", key=text)
        for wrong in (7, b"token", ["token"]):
            with self.assertRaisesRegex(TypeError, "^token "):
                halley.connect("http://h", token=wrong)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
