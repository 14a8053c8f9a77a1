"""Whose requests these are: nobody's in particular, one token's, or what a callback gives.

Requests and the session share the newest token; the callback is asked once at a time. It decides
nothing about when: that is the machine's.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

from .machine import Tokens
from .types import HalleyError
from .wire import lifetime_of

#: A token, or None when nobody is signed in any more.
TokenCallback = Callable[[], Awaitable[str | None] | str | None]
TokenSource = str | TokenCallback | None
#: As long as the machine waits for one.
ASK_S = 30.0
#: Before it expires a request takes another one.
SPARE_S = 10.0


class TokenKeeper:
    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._asking: asyncio.Task[str | None] | None = None
        self._expires = float("inf")
        self.current = source if isinstance(source, str) else None

    @property
    def kind(self) -> Tokens:
        if self._source is None:
            return "none"
        return "fixed" if isinstance(self._source, str) else "asked"

    async def renew(self) -> str | None:
        """Asks the callback; whoever asks meanwhile gets the same answer."""
        if self.kind != "asked":
            return self.current
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    async def get(self) -> str | None:
        """One that is good, as far as is known."""
        if self.kind == "asked" and (
            self.current is None or time.monotonic() > self._expires - SPARE_S
        ):
            return await self.renew()
        return self.current

    async def _ask(self) -> str | None:
        assert callable(self._source)
        async with asyncio.timeout(ASK_S):
            answer = self._source()
            token = await answer if inspect.isawaitable(answer) else answer
        if token is not None and not isinstance(token, str):
            raise HalleyError("token_callback", "the callback must give a str or None")
        self.current = token
        lifetime = lifetime_of(token, time.time()) if token else None
        self._expires = float("inf") if lifetime is None else time.monotonic() + lifetime
        return token

    def _asked(self, task: asyncio.Task[str | None]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # those who wait for it have it; nobody may be waiting
