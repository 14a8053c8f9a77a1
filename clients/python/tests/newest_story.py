"""`subscribe` with `last` at a real server, by each transport:
`newest_story.py PUBLIC_URL API_URL`; test/system runs it."""

from __future__ import annotations

import asyncio
import sys

import halley

WAIT_S = 60.0


async def main(public: str, api: str) -> None:
    async with halley.server(api) as server:
        for transport in ("websocket", "sse", "ndjson", "poll"):
            subject = f"newest/{transport}"
            for n in range(5):
                await server.publish(subject, n)
            async with halley.connect(public, user="bob", transports=[transport]) as client:
                await client.opened()
                await client.subscribe(subject, last=3)
                await server.publish(subject, "live")
                found: list[object] = []
                async with asyncio.timeout(WAIT_S):
                    async for item in client.events():
                        assert isinstance(item, halley.Event), item
                        found.append(item.data)
                        if item.data == "live":
                            break
                assert found == [2, 3, 4, "live"], (transport, found)
    print("all holds")


asyncio.run(main(*sys.argv[1:]))
