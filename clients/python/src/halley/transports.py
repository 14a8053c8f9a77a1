"""The ways by which events come: WebSocket, server-sent events, NDJSON, long-poll.

Each is an asynchronous generator of signals. It ends by a `Loss`, or by an exception of the network
or of the parser, which `loss_from` turns into one. It decides nothing.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from urllib.parse import urlencode

import aiohttp

from .types import HalleyError, Loss
from .wire import Message, Ndjson, Signal, Sse, loss_of, parse, refusal

#: The first poll waits for nothing: it shows that the server is there.
POLL_S = 25
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
#: Some proxies take no longer one: what it would say is a form then (http.md 28.2).
QUERY_MAX = 4_000
#: Servers and proxies take addresses of 8 KB: what is longer is a WebSocket's first message (28.3).
ADDRESS_MAX = 8_000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
#: Nothing but the machine bounds how long a stream is open.
ENDLESS = aiohttp.ClientTimeout(total=None, sock_connect=10)


@dataclass
class Place:
    """Where to connect, as whom."""

    http: aiohttp.ClientSession
    base: str
    user: str | None
    token: str | None
    cursor: str | None
    #: What the session is subscribed to from its beginning.
    subjects: tuple[str, ...] = ()
    #: How many of the newest events about each of them come first; a cursor says more.
    last: int | None = None
    #: Who comes to these and leaves is told; not to polls.
    presence: tuple[str, ...] = ()
    #: The WebSocket, while it is open: what is to be said in band goes there.
    socket: aiohttp.ClientWebSocketResponse | None = field(default=None)
    #: For what its session stands, by member and subject, where that has changed since it began;
    #: None where it isn't known.
    _changed: dict[tuple[str, str], bool | None] = field(default_factory=dict)

    def stands(self, key: tuple[str, str]) -> bool | None:
        member, subject = key
        began = self.subjects if member == "subject" else self.presence
        return self._changed.get(key, subject in began)

    def knows(self, key: tuple[str, str], stands: bool | None) -> None:
        self._changed[key] = stands

    def doubt(self, key: tuple[str, str]) -> None:
        """It is asked for, and may be so or not until that is answered."""
        self._changed[key] = None

    def query(self, **more: str) -> list[tuple[str, str]]:
        last = str(self.last) if self.last and self.subjects and not self.cursor else None
        query = {"user": self.user, "cursor": self.cursor, "last": last,
                 "presence": ",".join(self.presence), **more}
        subjects = [("subject", subject) for subject in self.subjects]
        return [(name, value) for name, value in query.items() if value] + subjects

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


async def websocket(place: Place) -> AsyncGenerator[Signal, None]:
    wanted = urlencode(place.query())
    is_long = len(wanted) > ADDRESS_MAX
    # A heartbeat may be a ping alone (http.md 9.6), so pings are seen here.
    async with place.http.ws_connect(
        f"{place.base}/v1/ws", params={"open": "message"} if is_long else place.query(),
        headers=place.headers, autoping=False,
        max_msg_size=MESSAGE_BYTES_MAX, timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
    ) as socket:
        if is_long:
            await socket.send_str(wanted)
        place.socket = socket
        is_heard = False
        if place.cursor and not is_long:
            # Without anything missed, nothing more may come for a while. Without a cursor the
            # welcome comes, and what is published counts from there (http.md 9.6, 21.3).
            yield {}
        while True:
            message = await socket.receive()
            match message.type:
                case aiohttp.WSMsgType.TEXT:
                    signal = parse(message.data)
                    yield refused_by(signal) or signal
                case aiohttp.WSMsgType.PING:
                    await socket.pong(message.data)
                    yield {}
                case aiohttp.WSMsgType.PONG:
                    yield {}
                case aiohttp.WSMsgType.CLOSE:
                    yield closed_by(message.data, message.extra or "", is_heard)
                    return
                case aiohttp.WSMsgType.ERROR:
                    yield Loss("malformed", str(message.data), broken=not is_heard)
                    return
                case _:
                    yield Loss("cut", broken=not is_heard)
                    return
            is_heard = True


EXPIRED = 4401
#: Something between understands no WebSocket.
NOT_UNDERSTOOD = (1002, 1003, 1007)


def refused_by(message: Message) -> Loss | None:
    """The error of a first message that is refused, which alone has a status (http.md 28.4)."""
    error = message.get("error")
    if not isinstance(error, dict) or "status" not in error:
        return None
    return Loss(error["code"], error["message"], error["status"], error.get("retry_after_s"))


def closed_by(code: int, reason: str, is_heard: bool) -> Loss:
    """The reason of a close begins with its code, such as `too_many_sessions` (http.md 13.5)."""
    words = re.match(r"[a-z_]+", reason)
    name = "token_expired" if code == EXPIRED else words[0] if words else "closed"
    return Loss(name, f"closed with {code} {reason}".strip(),
                broken=code in NOT_UNDERSTOOD and not is_heard)


def opening(
    place: Place, path: str, query: list[tuple[str, str]], headers: dict[str, str],
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    """A request for a stream or a poll, its parameters in the address or in a form."""
    url, text = f"{place.base}/v1/{path}", urlencode(query)
    if len(text) > QUERY_MAX:
        return place.http.post(url, data=text.encode(), timeout=ENDLESS,
                               headers={**place.headers, **headers, **FORM})
    return place.http.get(url, params=query, headers={**place.headers, **headers},
                          timeout=ENDLESS)


async def _stream(
    place: Place, accept: str, parser: Callable[[], Sse | Ndjson],
) -> AsyncGenerator[Signal, None]:
    headers = {"Accept": accept, "Cache-Control": "no-store"}
    async with opening(place, "stream", place.query(), headers) as answer:
        if answer.content_type != accept:
            yield Loss("http", f"no stream of {accept}", broken=True)
            return
        reader, is_heard = parser(), False
        async for data in answer.content.iter_any():
            is_heard = True
            for signal in reader.feed(data):
                yield signal
                if isinstance(signal, Loss):
                    return
        yield Loss("closed", broken=not is_heard)


def sse(place: Place) -> AsyncGenerator[Signal, None]:
    return _stream(place, "text/event-stream", Sse)


def ndjson(place: Place) -> AsyncGenerator[Signal, None]:
    return _stream(place, "application/x-ndjson", Ndjson)


async def poll(place: Place) -> AsyncGenerator[Signal, None]:
    timeout = "0"
    while True:
        query = place.query(timeout=timeout, presence="")
        async with opening(place, "poll", query, {}) as answer:
            body = parse(await answer.text())
        place.cursor, timeout = body.get("cursor") or place.cursor, str(POLL_S)
        for message in poll_messages(body):
            yield message


def poll_messages(body: Message) -> list[Message]:
    """http.md 11.1: the gap stands before the events, the cursor covers all of them."""
    messages: list[Message] = [{"gap": body["gap"]}] if body.get("gap") else []
    messages += body.get("events", [])
    last: Message = {key: body[key] for key in ("cursor", "end") if body.get(key)}
    return [*messages, last]


async def accepted(answer: aiohttp.ClientResponse) -> None:
    """Of each answer, that of a WebSocket's opening too: a refusal says why (http.md 5.3).

    A batch that is refused in the middle still has the results of what came before.
    """
    if answer.status >= 400 and answer.content_type != "application/x-ndjson":
        raise refusal(answer.status, answer.headers, await answer.text(errors="replace"))


def session(context: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Every refusal is a HalleyError, and nothing is repeated behind the machine's back.

    aiohttp sends a GET at once again whose connection broke, and has no option for that: a server
    that is in trouble would be asked twice as often as it should.
    """
    connector = aiohttp.TCPConnector(limit=0, ssl=True if context is None else context)
    http = aiohttp.ClientSession(raise_for_status=accepted, connector=connector)
    http._retry_connection = False
    return http


def failure_of(error: Exception) -> HalleyError:
    """Of the network: nothing was answered."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = error.certificate_error
        text = (f"the certificate of {error.host} isn't trusted ({why}): where it is of a CA of "
                "your own, pass ssl=ssl.create_default_context(cafile='ca.pem')")
        return HalleyError("tls", text)
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return HalleyError("tls", f"no TLS with the server: {error}")
    return HalleyError("unreachable", str(error) or type(error).__name__)


def loss_from(error: Exception) -> Loss:
    """What an exception of a transport means."""
    if isinstance(error, HalleyError):
        return loss_of(error)
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return Loss("http", error.message, error.status, broken=True)
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        # Before the others: one of a certificate is a ValueError as well.
        failure = failure_of(error)
        return Loss(failure.code, failure.message)
    if isinstance(error, (ValueError, KeyError, TypeError, aiohttp.ClientPayloadError)):
        is_cut = isinstance(error, aiohttp.ClientPayloadError)
        return Loss("cut" if is_cut else "malformed", str(error), broken=not is_cut)
    failure = failure_of(error)
    return Loss(failure.code, failure.message)


def token_message(token: str) -> str:
    return json.dumps({"op": "token", "token": token})


Transport = Callable[[Place], AsyncGenerator[Signal, None]]
TRANSPORTS: dict[str, Transport] = {
    "websocket": websocket, "sse": sse, "ndjson": ndjson, "poll": poll,
}
