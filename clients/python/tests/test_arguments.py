"""Each function refuses a wrong argument at once, before `async with` as well as within it."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import unittest
from collections.abc import Awaitable, Callable
from typing import Any, cast

import halley
from aiohttp import web
from small_server import WAIT_S, AtAServer, ndjson

HALF = "\ud800"
URL = "http://127.0.0.1:1"
#: Any, since types would refuse all of it.
connect, server = cast(Any, halley.connect), cast(Any, halley.server)

MADE: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (TypeError, "url", lambda: connect(None)),
    (TypeError, "url", lambda: connect(b"http://h")),
    *((ValueError, "url", lambda url=url: connect(url)) for url in (
        "", "h", "h:8080", "ws://h", "http://", "http:///v1", "http://h?a=1", "http://h#a",
        "http://h:port", "http://h:99999", f"http://{HALF}")),
    (TypeError, "user", lambda: connect(URL, user=7)),
    (ValueError, "user", lambda: connect(URL, user=HALF)),
    (TypeError, "cursor", lambda: connect(URL, cursor=7)),
    (TypeError, "transports", lambda: connect(URL, transports="sse")),
    (TypeError, "transports", lambda: connect(URL, transports=None)),
    (TypeError, "transports", lambda: connect(URL, transports=[None])),
    (ValueError, "transports", lambda: connect(URL, transports=[])),
    (ValueError, "transports", lambda: connect(URL, transports=["carrier pigeon"])),
    (TypeError, "on_state", lambda: connect(URL, on_state="print")),
    (TypeError, "on_state", lambda: connect(URL, on_state=_value)),
    (TypeError, "silence", lambda: connect(URL, silence="120")),
    (TypeError, "silence", lambda: connect(URL, silence=None)),
    (ValueError, "silence", lambda: connect(URL, silence=0)),
    (ValueError, "timeout", lambda: connect(URL, timeout=-1)),
    (ValueError, "timeout", lambda: connect(URL, timeout=float("nan"))),
    (TypeError, "timeout", lambda: server(URL, timeout=True)),
    (TypeError, "subjects", lambda: connect(URL, subjects="room/7")),
    (TypeError, "subjects", lambda: connect(URL, subjects=b"room/7")),
    (TypeError, "subjects", lambda: connect(URL, subjects=None)),
    (TypeError, "subjects", lambda: connect(URL, subjects=[7])),
    (ValueError, "subjects", lambda: connect(URL, subjects=[HALF])),
    (TypeError, "presence", lambda: connect(URL, presence="room/7")),
    (ValueError, "presence", lambda: connect(URL, presence=[HALF])),
    (TypeError, "last", lambda: connect(URL, subjects=["a"], last="20")),
    (TypeError, "last", lambda: connect(URL, subjects=["a"], last=True)),
    (ValueError, "last", lambda: connect(URL, subjects=["a"], last=0)),
    (TypeError, "ssl", lambda: connect(URL, ssl=False)),
    (TypeError, "ssl", lambda: server(URL, ssl="ca.pem")),
    (TypeError, "key", lambda: server(URL, key=7)),
    (TypeError, "url", lambda: server(7)),
]

Call = Callable[[Any], Awaitable[object]]
#: Of users and of servers.
PUBLISH: list[tuple[type[Exception], str, Call]] = [
    (TypeError, "whom", lambda c: c.publish(None, 1)),
    (TypeError, "to", lambda c: c.publish(7, 1)),
    (TypeError, "to", lambda c: c.publish(b"ann", 1)),
    (TypeError, "to", lambda c: c.publish(["ann", 7], 1)),
    (ValueError, "subject", lambda c: c.publish(HALF, 1)),
    (TypeError, "subjects", lambda c: c.publish({"subjects": "room/7"}, 1)),
    (ValueError, "whom", lambda c: c.publish({"subject": "a", "data": 2}, 1)),
    (TypeError, "JSON", lambda c: c.publish("a", {1, 2})),
    (TypeError, "JSON", lambda c: c.publish("a", object())),
    (ValueError, "JSON", lambda c: c.publish("a", float("nan"))),
    (ValueError, "JSON", lambda c: c.publish("a", float("inf"))),
    (TypeError, "id", lambda c: c.publish("a", 1, id=7)),
    (TypeError, "ack", lambda c: c.publish("a", 1, ack=True)),
    (TypeError, "keep", lambda c: c.publish("a", 1, keep="yes")),
    (TypeError, "events", lambda c: c.publish_many({"subject": "a", "data": 1})),
    (TypeError, "events", lambda c: c.publish_many("a")),
    (TypeError, "events", lambda c: c.publish_many(None)),
    (TypeError, r"events\[1\]", lambda c: c.publish_many([{"subject": "a", "data": 1}, "b"])),
    (ValueError, r"events\[0\]", lambda c: c.publish_many([{"subject": "a"}])),
    (TypeError, r"to of events\[0\]", lambda c: c.publish_many([{"to": "ann", "data": 1}])),
    (TypeError, r"events\[0\]", lambda c: c.publish_many([{"subject": "a", "data": b"1"}])),
]
CLIENT = PUBLISH + [
    wrong for name in ("follow", "unfollow", "subscribe", "unsubscribe", "watch", "unwatch")
    for wrong in cast("list[tuple[type[Exception], str, Call]]", [
        (TypeError, "subjects", lambda c, name=name: getattr(c, name)(7)),
        (TypeError, "subjects", lambda c, name=name: getattr(c, name)("a", None)),
        (TypeError, r"\*subjects", lambda c, name=name: getattr(c, name)(["a", "b"])),
        (TypeError, "subjects", lambda c, name=name: getattr(c, name)(b"a")),
        (ValueError, "subjects", lambda c, name=name: getattr(c, name)("a", HALF)),
    ])
] + cast("list[tuple[type[Exception], str, Call]]", [
    (TypeError, "last", lambda c: c.subscribe("a", last="5")),
    (ValueError, "last", lambda c: c.subscribe("a", last=0)),
    (TypeError, "JSON", lambda c: c.say(object())),
    (ValueError, "JSON", lambda c: c.say(float("nan"))),
    (TypeError, "user", lambda c: c.presence(7)),
    (ValueError, "user", lambda c: c.presence(HALF)),
])
SERVER = PUBLISH + cast("list[tuple[type[Exception], str, Call]]", [
    (TypeError, "pair", lambda c: c.follow("ab")),
    (TypeError, "pair", lambda c: c.follow("ann", "room/7")),
    (TypeError, "pair", lambda c: c.follow(("ann",))),
    (TypeError, "pair", lambda c: c.follow(("ann", 7))),
    (TypeError, "pair", lambda c: c.unfollow([("ann", "room/7")])),
    (ValueError, "pair", lambda c: c.unfollow(("ann", HALF))),
    (TypeError, "user", lambda c: c.presence(None)),
    (TypeError, "user", lambda c: c.close_sessions(7)),
    (TypeError, "subject", lambda c: _first(c.followers, 7)),
    (ValueError, "user", lambda c: _first(c.following, HALF)),
])
#: All that they have, but for `close` and what begins with `_`.
USED: dict[str, Call] = {
    "state": lambda c: _value(c.state), "transport": lambda c: _value(c.transport),
    "opened": lambda c: c.opened(), "events": lambda c: _first(c.events),
    "follow": lambda c: c.follow("a"), "unfollow": lambda c: c.unfollow("a"),
    "subscribe": lambda c: c.subscribe("a"), "unsubscribe": lambda c: c.unsubscribe("a"),
    "watch": lambda c: c.watch("a"), "unwatch": lambda c: c.unwatch("a"),
    "say": lambda c: c.say(1), "following": lambda c: _first(c.following),
    "presence": lambda c: c.presence("a"), "publish": lambda c: c.publish("a", 1),
    "publish_many": lambda c: c.publish_many([{"subject": "a", "data": 1}]),
    "close": lambda c: c.close(),
}
#: What its parts ask of it, and what it has from the beginning.
BESIDE = {"cursor", "may", "show_newest", "take"}
SERVES: dict[str, Call] = {
    "follow": lambda c: c.follow(("a", "b")), "unfollow": lambda c: c.unfollow(("a", "b")),
    "presence": lambda c: c.presence("a"), "followers": lambda c: _first(c.followers, "a"),
    "following": lambda c: _first(c.following, "a"),
    "close_sessions": lambda c: c.close_sessions("a"), "publish": lambda c: c.publish("a", 1),
    "publish_many": lambda c: c.publish_many([{"subject": "a", "data": 1}]),
}


async def _first(pages: Callable[..., Any], *args: object) -> object:
    return await anext(pages(*args))


async def _value(value: object) -> object:
    return value


def public(one: object) -> set[str]:
    return {name for name, _ in inspect.getmembers_static(type(one)) if name[0] != "_"}


class Arguments(AtAServer):
    def refused(self, error: Exception, kind: type[Exception], name: str) -> None:
        self.assertIs(type(error), kind, error)
        self.assertRegex(str(error), name)

    def test_making_one(self) -> None:
        for kind, name, make in MADE:
            with self.subTest(name):
                with self.assertRaises((TypeError, ValueError, AttributeError)) as caught:
                    make()
                self.refused(caught.exception, kind, name)
        for url in ("http://h", "https://h:8443/", "http://[::1]:8080", "https://h/halley/"):
            self.assertFalse(halley.connect(url, subjects=("a",))._base.endswith("/"))
        self.assertEqual(list(halley.connect(URL, subjects=(n for n in "ab"))._said["subject"]),
                         ["a", "b"])

    async def test_calling_one(self) -> None:
        async def refuses(request: web.Request) -> web.StreamResponse:
            self.fail("it was sent")

        url = await self.serve(ndjson, refuses)
        async with asyncio.timeout(WAIT_S), connect(url, user="b") as client, server(url) as api:
            for one, cases in ((client, CLIENT), (api, SERVER)):
                for kind, name, call in cases:
                    with self.subTest(name):
                        with self.assertRaises((TypeError, ValueError)) as caught:
                            await call(one)
                        self.refused(caught.exception, kind, name)
            self.assertEqual(await client.follow(), {"added": 0, "already": 0})
            self.assertEqual(await api.unfollow(), {"removed": 0, "absent": 0})

    async def test_before_it_is_entered(self) -> None:
        for one, calls, name in ((connect(URL, user="b"), USED, "halley.connect"),
                                 (server(URL), SERVES, "halley.server")):
            self.assertEqual(public(one) - BESIDE, calls.keys())
            for call in calls.values():
                with self.assertRaisesRegex(RuntimeError, f"async with {name}"):
                    await call(one)

    async def test_after_its_end(self) -> None:
        url = await self.serve(ndjson)
        async with connect(url, user="b") as client, server(url) as api:
            with self.assertRaisesRegex(RuntimeError, "entered already"):
                await client.__aenter__()
            with self.assertRaisesRegex(RuntimeError, "entered already"):
                await api.__aenter__()
        for one, calls in ((client, USED), (api, SERVES)):
            for name in calls.keys() - {"state", "transport", "events", "close"}:
                with self.subTest(name), self.assertRaises(halley.HalleyError) as caught:
                    async with asyncio.timeout(WAIT_S):
                        await calls[name](one)
                self.assertEqual(caught.exception.code, "closed")
        await client.close()
        self.assertEqual([item async for item in client.events()], [])

    def test_a_context_is_taken(self) -> None:
        context = ssl.create_default_context()
        self.assertIs(halley.connect("https://h", ssl=context)._ssl, context)


if __name__ == "__main__":
    unittest.main()
