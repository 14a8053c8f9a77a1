"""A user of Halley: its events, and the requests that a user may make.

Events come by one `Connection` at a time; `subscriptions` holds the subscribed subjects. Requests
go by HTTP on connections of their own, whatever the transport: a program that publishes within its
own `async for` never waits for itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from . import arguments
from . import machine as m
from .connection import Connection, OnState
from .newest import is_about, messages_of
from .requests import NDJSON, Publisher, Requests, raise_error, raise_first, read, segment
from .subscriptions import Subscriptions
from .tokens import TokenKeeper, TokenSource
from .transports import FORM, QUERY_MAX, TRANSPORTS, Place, session
from .types import HalleyError, Item, State
from .wire import Message, names_of

#: With what stands around it: a longer message would end the connection, whose next one would say
#: it again (`limits.message_bytes_max`, 65,536).
STATE_BYTES_MAX = 65_000


class Client(Publisher):
    """Made by `connect`; entered by `async with`, which connects and at its end closes."""

    _events = "/v1/me/events"
    _made_by = "halley.connect"

    def __init__(
        self, url: str, *, token: TokenSource = None, user: str | None = None,
        cursor: str | None = None, transports: Sequence[str] = tuple(TRANSPORTS),
        on_state: OnState | None = None, silence: float = 120.0, timeout: float = 60.0,
        subjects: Iterable[str] = (), last: int | None = None, presence: Iterable[str] = (),
        ssl: SSLContext | None = None,
    ) -> None:
        self._base = arguments.address(url)
        self._user = arguments.text_or_none("user", user)
        self._keeper = TokenKeeper(token)
        self._transports = tuple(arguments.texts("transports", transports))
        if not self._transports or set(self._transports) - set(TRANSPORTS):
            raise ValueError(f"transports are some of {', '.join(TRANSPORTS)}")
        self._cursor = arguments.text_or_none("cursor", cursor)
        arguments.function_or_none("on_state", on_state)
        self._on_state = on_state
        self._silence = arguments.seconds("silence", silence)
        self._timeout = arguments.seconds("timeout", timeout)
        self._said = {"subject": dict.fromkeys(arguments.texts("subjects", subjects)),
                      "presence": dict.fromkeys(arguments.texts("presence", presence))}
        self._last = arguments.count_or_none("last", last)
        self._ssl = arguments.context_or_none(ssl)
        #: What the user says of itself, said again on each connection.
        self._state: Any = None
        self._parts: tuple[Connection, Subscriptions] | None = None

    async def __aenter__(self) -> Self:
        if self._parts is not None and self.state != "closed":
            raise RuntimeError("the client is entered already: make another one")
        self._http = session(self._ssl)
        self._entered = Requests(self._http, self._base, self._keeper, self._user)
        connection = Connection(
            transports=self._transports, keeper=self._keeper, cursor=self._cursor,
            silence=self._silence, timeout=self._timeout, begin=self._begin,
            on_open=self._say_again, on_state=self._on_state, on_ended=self._end)
        self._parts = (connection, Subscriptions(self._said, connection, self, self._timeout))
        connection.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the stream and what goes with it. Events that wait are still given."""
        connection = self._connection
        try:
            await connection.close()
        finally:
            await self._http.close()

    @property
    def _connection(self) -> Connection:
        if self._parts is None:
            raise RuntimeError(self._not_entered)
        return self._parts[0]

    @property
    def _subscriptions(self) -> Subscriptions:
        if self._parts is None:
            raise RuntimeError(self._not_entered)
        return self._parts[1]

    # ---- what a user sees ----

    @property
    def state(self) -> State:
        return self._connection.state

    @property
    def transport(self) -> str:
        """The one in use, or to be tried next."""
        return self._connection.transport

    @property
    def cursor(self) -> str | None:
        """All that `events` has given. Keep it to go on behind it in another process."""
        return self._cursor

    async def opened(self) -> None:
        """Waits for a connection that lives; HalleyError when there won't be any."""
        while self.state != "open":
            self._connection.raise_if_closed()
            await self._connection.next_change()

    def events(self) -> AsyncIterator[Item]:
        """Each event once, and each gap in its place, until `close`; HalleyError when refused.

        Two loops over it share what comes: each item goes to one of them. One that is cancelled
        while it waits takes nothing, and can be gone on with.
        """
        _ = self._connection  # else it would say so only when an item is waited for
        return _Events(self)

    async def follow(self, *subjects: str) -> dict[str, Any]:
        """`{"added", "already"}`. Of many, all that may be are made; then the first error."""
        return await self._follows("POST", subjects)

    async def unfollow(self, *subjects: str) -> dict[str, Any]:
        return await self._follows("DELETE", subjects)

    async def subscribe(self, *subjects: str, last: int | None = None) -> None:
        """Events about these come as well, as long as this client lives, without a follow.

        It returns when what is published from then on comes; without a connection it waits for one.
        With `last` so many of the newest about each of them come first, among the `events`, the
        oldest first and each once. Over another transport than WebSocket what was published just
        before may come behind them.

        A refusal is raised, and ends nothing. Over WebSocket it is asked for in band; over another
        transport by a poll that waits for nothing, and then the stream is opened anew with all
        subjects. A call that is cancelled isn't taken back: it is done, and the next call about the
        same subject comes behind it.
        """
        named = arguments.each("subjects", subjects)
        newest = arguments.count_or_none("last", last)
        if newest is None:
            return await self._subscriptions.change("subscribe", "subject", named)
        for subject in dict.fromkeys(named):
            await self._subscriptions.newest(subject, newest)

    async def unsubscribe(self, *subjects: str) -> None:
        named = arguments.each("subjects", subjects)
        await self._subscriptions.change("unsubscribe", "subject", named)

    async def watch(self, *subjects: str) -> None:
        """Who is there, who comes and who leaves is among the `events`, as `Presence`; `*`: of all
        whom this user follows. As `subscribe` otherwise; long-poll isn't told."""
        named = arguments.each("subjects", subjects)
        await self._subscriptions.change("subscribe", "presence", named)

    async def unwatch(self, *subjects: str) -> None:
        named = arguments.each("subjects", subjects)
        await self._subscriptions.change("unsubscribe", "presence", named)

    async def say(self, data: Any) -> None:
        """What those see who see that this user is there, 1 KB of it; None for nothing.

        It belongs to the connection, so each one says it again. Only a WebSocket carries it: over
        another transport it is kept for the next WebSocket, and said to nobody until then. What is
        refused isn't kept: the one before is what is said again. Calls are done in their order.
        """
        if len(arguments.json_of("data", data)) > STATE_BYTES_MAX:
            raise HalleyError("state_too_large", f"more than {STATE_BYTES_MAX} bytes")
        self._connection.raise_if_closed()
        await self._subscriptions.changes.run([("state", "")], lambda: self._say(data))

    async def following(self) -> AsyncIterator[str]:
        after: str | None = None
        while True:
            answer = await self._ask("GET", "/v1/me/follows", after=after, limit="1000")
            page = read(answer, "following", "next")
            for subject in page["following"]:
                yield subject
            after = page["next"]
            if after is None:
                return

    async def presence(self, user: str) -> bool:
        """Whether that user is online."""
        answer = await self._ask("GET", f"/v1/me/presence?subject={segment('user', user)}")
        return bool(read(answer, "online")["online"])

    # ---- what the machine has decided, done ----

    async def _follows(self, method: str, subjects: Sequence[str]) -> dict[str, Any]:
        named = arguments.each("subjects", subjects)
        if len(named) == 1:
            # In the query, as some proxies decode %2F in paths (http.md 28.1).
            one = "PUT" if method == "POST" else method
            path = f"/v1/me/follows?subject={segment('subject', named[0])}"
            return read(await self._ask(one, path))
        if not named:
            return dict.fromkeys(("added", "already") if method == "POST"
                                 else ("removed", "absent"), 0)
        body = "".join(json.dumps({"subject": subject}) + "\n" for subject in named)
        answer = read(await self._ask(method, "/v1/me/follows", body=body, headers=NDJSON))
        raise_first(answer, 0)
        return {name: count for name, count in answer.items() if name != "errors"}

    # ---- what its parts ask of it ----

    async def take(self) -> Item | None:
        """The next item; None at the end. For `events`."""
        connection = self._connection
        while not connection.items:
            if self.state == "closed":
                if connection.why is not None:
                    raise connection.why
                return None
            await connection.next_change()
        item = connection.take_item()
        self._cursor = item.cursor or self._cursor
        return item

    def _begin(self, effect: m.Open) -> Place:
        return Place(self._http, self._base, self._user, effect.token, effect.cursor,
                     tuple(self._said["subject"]), self._last,
                     presence=tuple(self._said["presence"]))

    def _end(self, ended: Message) -> None:
        """http.md 21.9: what has ended isn't said again, and can be asked for anew."""
        for member, subject in names_of(ended):
            self._subscriptions.ended((member, subject))
        self._state = None if ended.get("state") else self._state

    async def may(self, said: Mapping[str, Sequence[str]]) -> None:
        """Whether the next stream would be refused, without an end of this one (http.md 22.5)."""
        query = [("timeout", "0"), *(("subject", subject) for subject in said["subject"])]
        if said["presence"]:
            query.append(("presence", ",".join(said["presence"])))
        read(await self._poll(query), "events", "cursor")

    async def _poll(self, query: list[tuple[str, str]]) -> str:
        """What is too long for an address is a form (http.md 28.2)."""
        text = urlencode(query)
        if len(text) > QUERY_MAX:
            return await self._ask("POST", "/v1/poll", body=text, headers=FORM)
        return await self._ask("GET", f"/v1/poll?{text}")

    async def show_newest(self, subject: str, last: int) -> None:
        """By polls that wait for nothing: one brings as much as the server sends in one go, or says
        that there is more (http.md 11.5)."""
        query = [("timeout", "0"), ("subject", subject), ("last", str(last))]
        found: list[Message] = []
        while True:
            page = read(await self._poll(query), "events", "cursor")
            found += [message for message in messages_of(page) if is_about(message, subject)]
            if not page.get("more") or len(found) >= last:
                break
            query[2] = ("cursor", page["cursor"])
        await self._connection.live()
        self._connection.show(found)

    async def _say(self, data: Any) -> None:
        before, self._state = self._state, data
        place = self._connection.place
        if place is None or place.socket is None:
            return
        if not self._connection.in_band(place):
            return self._connection.anew()

        def answered(answer: Message) -> None:
            # It may have ended meanwhile, or what is said now may be what a server has ended.
            if not answer.get("error"):
                self._state = data
            elif self._state is data:
                self._state = before

        answer = await self._connection.operate(place, {"op": "state", "data": data}, answered)
        if answer is None and place is self._connection.place:
            # More is unread before the answer than is read ahead: the next connection says it.
            self._connection.anew()
        raise_error(answer)

    def _say_again(self, place: Place) -> None:
        if place.socket is not None and self._state is not None:
            self._connection.spawn(self._operate_state(place))

    async def _operate_state(self, place: Place) -> None:
        with suppress(HalleyError):  # nobody waits for it, and the next connection says it again
            await self._connection.operate(place, {"op": "state", "data": self._state})


class _Events:
    """A generator would end for good where one that waits for it is cancelled."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        item = await self._client.take()
        if item is None:
            raise StopAsyncIteration
        return item


def connect(
    url: str, *, token: TokenSource = None, user: str | None = None, cursor: str | None = None,
    transports: Sequence[str] = tuple(TRANSPORTS), on_state: OnState | None = None,
    silence: float = 120.0, timeout: float = 60.0, subjects: Iterable[str] = (),
    last: int | None = None, presence: Iterable[str] = (), ssl: SSLContext | None = None,
) -> Client:
    """A user at the public listener at `url`.

    `token`: a JWT, or what gives one, async or not, and is asked again before it expires. `user`:
    for a server that asks for no tokens. `cursor`: to go on where somebody was. `transports`: which
    of them, in which order. `on_state`: told each state and why; it must not wait. `silence`: after
    so many seconds without a word a connection is given up; keep it above the server's
    `stream.heartbeat`. `timeout`: for how long a request is tried, in seconds. `subjects`: what
    comes besides what the user follows; with them nobody need be the user. `last`: so many of the
    newest events about each of them come first, unless there is a cursor. `presence`: as for
    `watch`. `ssl`: an `ssl.SSLContext` that trusts the CA of a server of your own.

    What is of no use is a TypeError or a ValueError at once.
    """
    return Client(
        url, token=token, user=user, cursor=cursor, transports=transports, on_state=on_state,
        silence=silence, timeout=timeout, subjects=subjects, last=last, presence=presence, ssl=ssl)
