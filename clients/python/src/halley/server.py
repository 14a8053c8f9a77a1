"""A server of yours at Halley's API listener: publishing, the follows of all users, presence.

One connection pool and no stream. Each call is repeated until it is answered or `timeout` is over.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientSession

from . import arguments
from .requests import NDJSON, Publisher, Requests, raise_first, read, segment
from .tokens import TokenKeeper
from .transports import session

#: In one request; the body may be of any size, but is held in memory here.
FOLLOWS_MAX = 10_000


class Server(Publisher):
    """Made by `server`; entered by `async with`."""

    _events = "/v1/events"
    _made_by = "halley.server"
    _http: ClientSession

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 60.0,
        ssl: SSLContext | None = None,
    ) -> None:
        self._base = arguments.address(url)
        self._keeper = TokenKeeper(arguments.text_or_none("key", key), "key")
        self._timeout = arguments.seconds("timeout", timeout)
        self._ssl = arguments.context_or_none(ssl)

    async def __aenter__(self) -> Self:
        if self._entered is not None and not self._http.closed:
            raise RuntimeError("the server is entered already: make another one")
        self._http = session(self._ssl)
        self._entered = Requests(self._http, self._base, self._keeper, None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()  # what is asked then is refused with `closed`

    async def follow(self, *pairs: tuple[str, str]) -> dict[str, int]:
        """Pairs of user and subject: `{"added", "already"}`.

        A bad pair spoils no other: HalleyError comes when the rest of its 10,000 is done.
        """
        return await self._follows("POST", pairs)

    async def unfollow(self, *pairs: tuple[str, str]) -> dict[str, int]:
        return await self._follows("DELETE", pairs)

    async def presence(self, user: str) -> dict[str, Any]:
        """`{"user", "online", "sessions", "following", "followers"}`."""
        return read(await self._ask("GET", f"/v1/users/{segment('user', user)}"), "online")

    def followers(self, subject: str) -> AsyncIterator[str]:
        path = f"/v1/subjects/{segment('subject', subject)}/followers"
        return self._pages(path, "followers")

    def following(self, user: str) -> AsyncIterator[str]:
        return self._pages(f"/v1/users/{segment('user', user)}/following", "following")

    async def close_sessions(self, user: str) -> int:
        """Closes the user's connections, and says how many; it bans nobody."""
        path = f"/v1/users/{segment('user', user)}/sessions"
        return int(read(await self._ask("DELETE", path), "closed")["closed"])

    async def _follows(self, method: str, given: Sequence[object]) -> dict[str, int]:
        pairs = arguments.pairs(given)
        names = ("added", "already") if method == "POST" else ("removed", "absent")
        total = dict.fromkeys(names, 0)
        for first in range(0, len(pairs), FOLLOWS_MAX):
            some = pairs[first:first + FOLLOWS_MAX]
            body = "".join(
                json.dumps({"user": user, "subject": subject}) + "\n" for user, subject in some)
            answer = read(await self._ask(method, "/v1/follows", body=body, headers=NDJSON))
            for name, count in answer.items():
                if isinstance(count, int):
                    total[name] = total.get(name, 0) + count
            raise_first(answer, first)
        return total

    async def _pages(self, path: str, name: str) -> AsyncIterator[str]:
        after: str | None = None
        while True:
            answer = await self._ask("GET", path, after=after, limit="1000")
            page = read(answer, name, "next")
            for one in page[name]:
                yield one
            after = page["next"]
            if after is None:
                return


def server(
    url: str, *, key: str | None = None, timeout: float = 60.0, ssl: SSLContext | None = None,
) -> Server:
    """The API listener at `url`, with a server key where one is needed; `ssl` as for `connect`."""
    return Server(url, key=key, timeout=timeout, ssl=ssl)
