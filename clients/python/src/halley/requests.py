"""Requests that are repeated until they are answered: publishing, follows, presence.

`retry_wait` and the division of a batch decide without I/O. Each of these requests is safe to
repeat: an event has an id, and a second equal follow changes nothing.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import time
import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from . import arguments
from .tokens import TokenKeeper
from .transports import failure_of
from .types import HalleyError, Published
from .wire import Message, parse, seconds_of

#: So long an answer is waited for, as in the JavaScript client; the server's own limit is
#: `limits.response_ms_max`.
ANSWER_S = 12.0
#: A slower network isn't waited for with a long body.
BYTES_PER_S_MIN = 16 * 1024
#: The last try has so long at least.
LAST_S = 1.0
WAIT_S = 0.5
WAIT_S_MAX = 15.0
#: In one request; a refusal in the middle of it repeats what is behind.
BATCH_EVENTS = 1_000
#: In its place in a batch, such an error is worth another try (docs/reference/http-api.md).
PASSING = frozenset({
    "overloaded", "unavailable", "disk_full", "history_failed", "data_dir_moved", "busy",
    "too_many_requests", "response_timeout", "brain_busy", "brain_away", "internal",
    "unreachable",
})
NDJSON = {"Content-Type": "application/x-ndjson"}


#: Of whole answers, proxies' too.
PASSING_STATUSES = (429, 500, 502, 503, 504)


def is_passing(error: HalleyError) -> bool:
    return (error.code in PASSING or error.status in PASSING_STATUSES
            or error.retry_after is not None)


def read(text: str, *members: str) -> Message:
    """An answer with these members; without them it is somebody else's: `http`."""
    try:
        answer = parse(text)
        for member in members:
            answer[member]
        return answer
    except (ValueError, KeyError):
        raise HalleyError("http", f"an answer that isn't Halley's: {text[:80]!r}") from None


def retry_wait(retry_after: float | None, attempt: int, chance: float) -> float:
    """Seconds before the next try: what the server says, else twice as long each time."""
    if retry_after is not None:
        return retry_after + 0.5 * chance
    return min(WAIT_S * 2.0 ** min(attempt, 16), WAIT_S_MAX) * (0.5 + chance)


def segment(name: str, value: str) -> str:
    """The id that is the argument `name`, as one segment of a path."""
    return quote(arguments.text(name, value), safe="")


#: A subject; users who get it alone; or `{"subjects": […]}` for one event about several.
Whom = str | Sequence[str] | Mapping[str, Sequence[str]]


def event_of(
    whom: Whom, data: Any, event_id: str | None = None, ack: str | None = None,
    keep: bool = False,
) -> dict[str, Any]:
    """With an id of its own, so that it can be sent again without being there twice."""
    about: Mapping[str, Any]
    if isinstance(whom, str):
        about = {"subject": whom}
    elif isinstance(whom, Mapping):
        if whom.keys() - {"subject", "subjects", "to"}:
            raise ValueError(f"whom has subject, subjects or to, not {', '.join(map(str, whom))}")
        about = whom
    elif whom is None:
        raise TypeError("whom is a subject, a list of users or {'subjects': […]}, not None")
    else:
        about = {"to": whom}
    return with_id({**about, "data": data, "id": event_id, "ack": ack, "keep": keep})


def with_id(event: object, name: str = "the event") -> dict[str, Any]:
    """What it has of all that an event may have; what is None or False is as if it weren't there,
    but for the data."""
    whole = arguments.event(name, event)
    made = {member: whole[member] for member in ("subject", "subjects", "to", "ack", "keep")
            if whole.get(member) not in (None, False)}
    return made | {"data": whole["data"], "id": whole.get("id") or uuid.uuid4().hex}


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    retry_after: float | None


class Requests:
    """`keeper`: whose; `user`: for a server without tokens, who says so."""

    def __init__(
        self, http: aiohttp.ClientSession, base: str, keeper: TokenKeeper, user: str | None,
    ) -> None:
        self._http = http
        self._base = base
        self._keeper = keeper
        self._user = user

    async def ask(
        self, method: str, path: str, *, body: str | None = None,
        headers: Mapping[str, str] | None = None, timeout: float = 60.0, **query: str | None,
    ) -> Answer:
        """What was answered; HalleyError when it is refused, or not answered in the end."""
        deadline = time.monotonic() + timeout
        attempt, was_renewed = 0, False
        while True:
            error: HalleyError
            try:
                left = max(deadline - time.monotonic(), LAST_S)
                return await self._once(method, path, body, headers or {}, query, left)
            except HalleyError as refusal:
                error = refusal
            except (aiohttp.ClientError, OSError, TimeoutError) as failure:
                error = failure_of(failure)
            if error.status == 401 and self._keeper.kind == "asked" and not was_renewed:
                was_renewed = True
                await self._token(self._keeper.renew(), deadline - time.monotonic())
                continue
            wait = retry_wait(error.retry_after, attempt, random.random())
            if not is_passing(error) or time.monotonic() + wait > deadline:
                raise error
            await asyncio.sleep(wait)
            attempt += 1

    async def _once(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str],
        query: Mapping[str, str | None], left: float,
    ) -> Answer:
        token = await self._token(self._keeper.get(), left)
        head = dict(headers)
        if token:
            head["Authorization"] = f"Bearer {token}"
        params = {name: value for name, value in {"user": self._user, **query}.items() if value}
        data = None if body is None else body.encode()
        total = ANSWER_S + len(data or b"") / BYTES_PER_S_MIN
        if self._http.closed:
            raise HalleyError("closed", "the client was closed")
        async with self._http.request(
            method, self._base + path, params=params, headers=head,
            data=None if data is None else io.BytesIO(data),
            timeout=aiohttp.ClientTimeout(total=min(total, left)),
        ) as answer:
            after = seconds_of(answer.headers.get("Retry-After"))
            return Answer(await answer.text(errors="replace"), after)

    async def _token(self, coming: Coroutine[Any, Any, str | None], left: float) -> str | None:
        try:
            async with asyncio.timeout(left):
                return await coming
        except TimeoutError:
            raise HalleyError("token_callback", "no token came in time") from None

    async def publish(self, path: str, event: Mapping[str, Any], timeout: float) -> Published:
        body = arguments.json_of("the event", event)
        answer = await self.ask("POST", path, body=body, timeout=timeout,
                                headers={"Content-Type": "application/json"})
        return published(read(answer.text, "id"))

    async def publish_many(
        self, path: str, events: Iterable[Mapping[str, Any]], timeout: float,
    ) -> list[Published | HalleyError]:
        """In the events' order: each one's id, or its error."""
        lines = [arguments.json_of(f"events[{n}]", event) for n, event in enumerate(events)]
        results: list[Published | HalleyError | None] = [None] * len(lines)
        for first in range(0, len(lines), BATCH_EVENTS):
            wanted = list(range(first, min(first + BATCH_EVENTS, len(lines))))
            await self._publish_batch(path, lines, wanted, results, timeout)
        return [result for result in results if result is not None]

    async def _publish_batch(
        self, path: str, lines: list[str], wanted: list[int],
        results: list[Published | HalleyError | None], timeout: float,
    ) -> None:
        deadline, attempt = time.monotonic() + timeout, 0
        while wanted:
            body = "\n".join(lines[index] for index in wanted) + "\n"
            left = max(deadline - time.monotonic(), 1.0)
            answer = await self.ask("POST", path, body=body, headers=NDJSON, timeout=left)
            rest = take_results(answer.text, wanted, results)
            if not rest:
                return
            if len(rest) < len(wanted):
                attempt = 0
            wait = retry_wait(answer.retry_after, attempt, random.random())
            if time.monotonic() + wait > deadline:
                for index in rest:
                    results[index] = results[index] or HalleyError("timeout", "not answered")
                return
            await asyncio.sleep(wait)
            wanted, attempt = rest, attempt + 1


def take_results(
    text: str, wanted: list[int], results: list[Published | HalleyError | None],
) -> list[int]:
    """Puts a batch's answers in their places; gives what is to be sent again, in its order.

    An answer that is too short was cut by an error behind which nothing was published.
    """
    rest: list[int] = []
    answers = [line for line in text.split("\n") if line.strip()]
    for place, index in enumerate(wanted):
        if place >= len(answers):
            rest.append(index)
            continue
        answer = read(answers[place])
        error = answer.get("error")
        if error is None:
            results[index] = published(answer)
            continue
        results[index] = HalleyError(str(error["code"]), str(error.get("message", "")), None,
                                     error.get("retry_after_s"))
        if error["code"] in PASSING:
            rest.append(index)
    return rest


def published(answer: Mapping[str, Any]) -> Published:
    return Published(str(answer.get("id")), answer.get("sessions"))


def raise_error(answer: Mapping[str, Any] | None) -> None:
    """Of an operation that was refused; None is one that was lost."""
    error = answer.get("error") if answer else None
    if error:
        raise HalleyError(error["code"], error.get("message", ""), None,
                          error.get("retry_after_s"))


def raise_first(answer: Mapping[str, Any], before: int) -> None:
    """The first line of follows that was refused, `before` lines of other requests behind it."""
    for error in answer.get("errors") or []:
        text = f"line {before + error['line']}: {error['error'].get('message', '')}"
        raise HalleyError(error["error"]["code"], text)


class Publisher:
    """What a user and a server do alike, by requests; `_events` is where each publishes."""

    _events: str
    _timeout: float
    #: How it is made, for who forgets to enter it.
    _made_by: str
    _entered: Requests | None = None

    @property
    def _requests(self) -> Requests:
        if self._entered is None:
            raise RuntimeError(self._not_entered)
        return self._entered

    @property
    def _not_entered(self) -> str:
        name = type(self).__name__.lower()
        return f"enter the {name} first: async with {self._made_by}(…) as {name}: …"

    async def publish(
        self, whom: Whom, data: Any, *, id: str | None = None, ack: str | None = None,
        keep: bool = False,
    ) -> Published:
        """About a subject, `{"subjects": […]}`, or to a list of users alone. Until it is answered,
        for `timeout` seconds; it has an id, so it is there once. `keep`: it is the subject's
        latest value."""
        event = event_of(whom, data, id, ack, keep)
        return await self._requests.publish(self._events, event, self._timeout)

    async def publish_many(
        self, events: Iterable[Mapping[str, Any]],
    ) -> list[Published | HalleyError]:
        """Events are `{"subject" or "subjects" or "to", "data", "id"?, "ack"?, "keep"?}`; for each
        an answer or error."""
        if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
            raise TypeError(f"events is a list of dicts, not {type(events).__name__}")
        made = [with_id(event, f"events[{n}]") for n, event in enumerate(events)]
        return await self._requests.publish_many(self._events, made, self._timeout)

    async def _ask(self, method: str, path: str, **more: Any) -> str:
        return (await self._requests.ask(method, path, timeout=self._timeout, **more)).text
