"""The token of requests: none, a fixed one, or one that a callback gives.

Requests and the session share the newest token; there is one call of the callback at a time.
Whatever goes wrong in it (it raises, returns something else, never ends, is cancelled) is a
HalleyError `token_callback` for the caller. When a token is renewed is the machine's decision.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable

from .machine import Tokens
from .types import HalleyError
from .wire import lifetime_of

#: A token, or None when nobody is signed in any more.
TokenCallback = Callable[[], Awaitable[str | None] | str | None]
TokenSource = str | TokenCallback | None
#: Less than the machine waits, which then hears why none came.
ASK_S = 29.0
#: Before it expires a request takes another one.
SPARE_S = 10.0
#: What a header carries.
TOKEN = re.compile(r"[!-~]+")


def check_token(name: str, token: str) -> str:
    """ValueError for what no request could carry."""
    if not token:
        raise ValueError(f"{name} is empty; leave it out where the server asks for none")
    if not TOKEN.fullmatch(token):
        raise ValueError(f"{name} has a space, a line end or letters beyond ASCII in it; "
                         "one that was read from a file may need .strip()")
    return token


class TokenKeeper:
    def __init__(self, source: TokenSource, name: str = "token") -> None:
        if isinstance(source, str):
            check_token(name, source)
        elif source is not None and not callable(source):
            raise TypeError(f"{name} is a str or a function that gives one, "
                            f"not {type(source).__name__}")
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
        """In a task of its own: one that isn't done in time is left to itself."""
        call = asyncio.create_task(self._call())
        try:
            await asyncio.wait({call}, timeout=ASK_S)
        finally:
            call.cancel()
        if not call.done():
            call.add_done_callback(_forget)
            raise HalleyError("token_callback", f"no token came within {ASK_S:g} s")
        if call.cancelled():
            raise HalleyError("token_callback", "the callback was cancelled")
        if error := call.exception():
            raise HalleyError("token_callback", str(error) or type(error).__name__) from error
        token = call.result()
        self.current = token
        lifetime = lifetime_of(token, time.time()) if token else None
        self._expires = float("inf") if lifetime is None else time.monotonic() + lifetime
        return token

    async def _call(self) -> str | None:
        assert callable(self._source)
        answer = self._source()
        token = await answer if inspect.isawaitable(answer) else answer
        if token is not None and not isinstance(token, str):
            raise TypeError(f"the callback gave {type(token).__name__}, not a str or None")
        return check_token("the callback's token", token) if token else None

    def _asked(self, task: asyncio.Task[str | None]) -> None:
        self._asking = None
        _forget(task)


def _forget(task: asyncio.Task[str | None]) -> None:
    if not task.cancelled():
        task.exception()  # those who wait for it have it; nobody may be waiting
