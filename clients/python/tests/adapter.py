"""The client as test/clients/README.md wants it: commands and observations, as lines of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import halley


def tell(**line: Any) -> None:
    sys.stdout.write(json.dumps(line, default=str) + "\n")  # a Decimal is none of JSON's
    sys.stdout.flush()


def told(item: halley.Presence) -> dict[str, Any]:
    """As it was told."""
    named = {"subject": item.subject, "online": item.online, "users": item.users,
             "user": item.user, "state": item.state, "states": item.states or None}
    if item.data is not None or item.state == "update":
        named["data"] = item.data
    return {name: value for name, value in named.items() if value is not None or name == "data"}


class Adapter:
    def __init__(self) -> None:
        self.client: halley.Client | None = None
        self.tokens: asyncio.Queue[str | None] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()

    async def ask_token(self) -> str | None:
        tell(want="token")
        return await self.tokens.get()

    async def connect(self, line: dict[str, Any]) -> None:
        def on_state(state: str, why: halley.HalleyError | None) -> None:
            tell(state=state, code=why.code if why else None)

        self.client = halley.connect(
            line["url"], user=line.get("user"), cursor=line.get("cursor"),
            token=self.ask_token if line.get("tokens") else line.get("token"),
            transports=line.get("transports", ("websocket", "sse", "ndjson", "poll")),
            subjects=line.get("subjects", ()), presence=line.get("presence", ()),
            silence=line.get("silence_ms", 120_000) / 1_000, on_state=on_state)
        await self.client.__aenter__()
        self.spawn(self.listen(self.client))

    async def listen(self, client: halley.Client) -> None:
        try:
            async for item in client.events():
                if isinstance(item, halley.Gap):
                    tell(gap={"from": item.start, "to": item.end, "reason": item.reason})
                elif isinstance(item, halley.Presence):
                    tell(presence=told(item))
                else:
                    tell(event={"id": item.id, "subject": item.subject, "at": item.at,
                                "data": item.data}, cursor=item.cursor)
        except halley.HalleyError:
            pass  # its state has said so

    async def operate(self, line: dict[str, Any]) -> None:
        assert self.client is not None
        try:
            tell(ref=line["ref"], **await self.done(self.client, line))
        except halley.HalleyError as error:
            tell(ref=line["ref"], error=error.code)

    async def done(self, client: halley.Client, line: dict[str, Any]) -> dict[str, Any]:
        match line["do"]:
            case "publish" if len(line["events"]) == 1:
                event = line["events"][0]
                one = await client.publish(
                    event["subject"], event["data"], id=event.get("id"), ack=event.get("ack"))
                return {"results": [{"id": one.id}]}
            case "publish":
                results = await client.publish_many(line["events"])
                return {"results": [
                    {"error": one.code} if isinstance(one, halley.HalleyError) else {"id": one.id}
                    for one in results]}
            case "follow":
                return {"result": await client.follow(line["subject"])}
            case "unfollow":
                return {"result": await client.unfollow(line["subject"])}
            case "subscribe":
                await client.subscribe(line["subject"])
                return {"result": True}
            case "unsubscribe":
                await client.unsubscribe(line["subject"])
                return {"result": True}
            case "say":
                await client.say(line["data"])
                return {"result": True}
            case "watch":
                await client.watch(line["subject"])
                return {"result": True}
            case "unwatch":
                await client.unwatch(line["subject"])
                return {"result": True}
            case "presence":
                return {"result": await client.presence(line["user"])}
        return {"error": "unknown_command"}

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self) -> None:
        async for line in lines():
            match line["do"]:
                case "connect":
                    await self.connect(line)
                case "token":
                    self.tokens.put_nowait(line["token"])
                case "close" if self.client is not None:
                    await self.client.close()
                case _:
                    self.spawn(self.operate(line))
        if self.client is not None:
            await self.client.close()


async def lines() -> AsyncIterator[dict[str, Any]]:
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


asyncio.run(Adapter().run())
