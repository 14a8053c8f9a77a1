"""When to connect, by which transport, with which token and cursor; and which of the messages that
arrive are shown. It decides and does nothing: no sockets, no timers, no tasks; clock and random
numbers are arguments.

Each method is an input and returns the effects to carry out, in their order. `due` is the time at
which `tick` must be called. The table is in docs/guides/write-a-client.md.

Invariants:
- At most one connection at a time: between two `Open` there is a `Drop`.
- An event is shown once, within the last RECENT_MAX of them.
- The cursor never covers an event that wasn't shown.
- The client never comes back earlier than the server allows.
- Only `close` and a refusal that no waiting changes end the attempts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .types import Event, Gap, HalleyError, Item, Loss, State
from .wire import presence_of, user_of

#: A stream may wait for 5 s to be admitted (`limits.admission_wait_ms_max`).
OPEN_S = 10.0
ASK_S = 30.0
#: The first wait after a refusal; it doubles up to the most.
WAIT_S = 1.0
WAIT_S_MAX = 30.0
#: After a connection that was steady, where the server didn't say: its own `stream.retry`.
RETRY_S = 2.0
#: A connection that lived for so long is none that flaps.
STEADY_S = 5.0
#: What comes this soon after a welcome may be all that a proxy lets through.
WELCOME_S = 1.0
#: Until the first transport is tried again where only a later one worked.
BEST_S = 600.0
RECENT_MAX = 10_000
#: Beyond it, the same id is another event: who publishes used it anew (`history.retention`).
DOUBLE_MS_MAX = 600_000
#: These no waiting changes. What a proxy says, which is no error of Halley's, may pass.
FINAL = (400, 403, 404, 413, 431)
#: An address that is too long stays so, whoever says it.
TOO_LONG = 414

#: `none`: the server asks for none; `fixed`: there is one and no other; `asked`: by a callback.
Tokens = Literal["none", "fixed", "asked"]
Phase = Literal["new", "asking", "opening", "live", "waiting", "closed"]


@dataclass(frozen=True, slots=True)
class Open:
    transport: str
    token: str | None
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed; nothing that it still says counts."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A token is wanted: `token` or `token_failed` is called then."""


@dataclass(frozen=True, slots=True)
class Renew:
    """The live session goes on with this token, told in band."""

    token: str


@dataclass(frozen=True, slots=True)
class Show:
    item: Item


@dataclass(frozen=True, slots=True)
class Tell:
    state: State
    why: HalleyError | None


Effect = Open | Drop | Ask | Renew | Show | Tell


class Machine:
    def __init__(
        self, *, transports: tuple[str, ...], now: Callable[[], float],
        random: Callable[[], float], tokens: Tokens = "none", token: str | None = None,
        cursor: str | None = None, silence: float = 120.0,
    ) -> None:
        self.cursor = cursor
        self.state: State = "connecting"
        self.phase: Phase = "new"
        self._transports = transports
        self._now = now
        self._random = random
        self._tokens = tokens
        self._silence = silence
        self._token = token
        self._shown: str | None = None
        #: It came from the callback, and hasn't opened anything yet.
        self._is_new = False
        self._asked = False
        self._transport = 0
        #: Since when the transports before this one count as broken.
        self._worse_since = 0.0
        self._failures = 0
        self._retry: float | None = None
        self._live_at = 0.0
        self._stalls = 0
        self._phase_due = float("inf")
        self._renew_at = float("inf")
        self._recent: OrderedDict[str, int] = OrderedDict()
        self._effects: list[Effect] = []

    @property
    def due(self) -> float:
        return min(self._phase_due, self._renew_at)

    @property
    def transport(self) -> str:
        return self._transports[self._transport]

    # ---- inputs ----

    def start(self) -> list[Effect]:
        self._connect()
        return self._done()

    def token(self, text: str | None, lifetime: float | None) -> list[Effect]:
        """A token, and the seconds for which it is good, if it says so; None: signed out."""
        if self.phase == "closed":
            return []
        self._asked = False
        if not text:
            return self.close(HalleyError("signed_out", "the callback gave no token"))
        self._token = text
        self._is_new = True
        self._renew_at = float("inf")
        if self._tokens == "asked" and lifetime is not None:
            self._renew_at = self._now() + lifetime * (0.75 + 0.15 * self._random())
        if self.phase == "asking":
            self._open()
        elif self.phase == "live":
            self._go_on()
        return self._done()

    def token_failed(self, message: str) -> list[Effect]:
        if self.phase == "closed":
            return []
        self._asked = False
        if self.phase == "asking":
            self._fail(Loss("token_callback", message))
        else:
            self._not_renewed(HalleyError("token_callback", message))
        return self._done()

    def heard(self) -> list[Effect]:
        """Something came: the connection lives."""
        if self.phase not in ("opening", "live"):
            return []
        now = self._now()
        if self.phase == "opening":
            self.phase = "live"
            self._live_at = now
            self._is_new = False
            self._tell("open")
            if self._token != self._shown:
                self._go_on()
        if now - self._live_at > WELCOME_S:
            self._stalls = 0
        if self.phase == "live":
            self._phase_due = now + self._silence
        return self._done()

    def message(self, message: Mapping[str, Any]) -> list[Effect]:
        """What came; an empty one is a heartbeat."""
        if self.phase not in ("opening", "live"):
            return []
        effects = self.heard()
        cursor = message.get("cursor") or self.cursor
        if gap := message.get("gap"):
            item = Gap(gap.get("from"), gap.get("to"), gap.get("reason", ""), cursor)
            self._effects.append(Show(item))
        elif presence := message.get("presence"):
            self._effects.append(Show(presence_of(presence)))
        elif "id" in message:
            if not self._is_new_event(message):
                return effects
            self._effects.append(Show(Event(
                str(message.get("id")), message.get("subject"), int(message.get("at") or 0),
                message.get("data"), cursor, tuple(message.get("subjects", ())))))
        self.cursor = cursor
        if end := message.get("end"):
            self._lose(Loss(end.get("reason", "ended")))
        elif "ref" not in message and message.get("error", {}).get("code", "") != "":
            # Only a token is said without a ref: this one was refused. Another answer came too late
            # for who asked.
            refused = message["error"]
            self._not_renewed(HalleyError(str(refused["code"]), str(refused.get("message", ""))))
        return effects + self._done()

    def retry(self, seconds: float) -> list[Effect]:
        """What the server asks to be waited after this connection."""
        self._retry = seconds
        return []

    def lost(self, loss: Loss) -> list[Effect]:
        if self.phase in ("opening", "live"):
            self._lose(loss)
        return self._done()

    def again(self) -> list[Effect]:
        """The next connection says something else than this one: it comes at once."""
        if self.phase in ("opening", "live"):
            self._effects.append(Drop())
            self._open()
        return self._done()

    def pause(self) -> list[Effect]:
        """The user takes nothing, so nothing is read: silence means nothing now."""
        if self.phase == "live":
            self._phase_due = float("inf")
        return []

    def tick(self) -> list[Effect]:
        """The time that `due` named may have come."""
        now = self._now()
        if now >= self._renew_at:
            self._renew()
        if now >= self._phase_due:
            self._phase_due = float("inf")
            if self.phase == "waiting":
                self._connect()
            elif self.phase == "asking":
                self._asked = False
                self._fail(Loss("token_callback", "no token came in time"))
            elif self.phase == "opening":
                self._lose(Loss("open_timeout", broken=True))
            elif self.phase == "live":
                # Once may be the network; what is silent after its first bytes again is a proxy.
                self._stalls += 1
                self._lose(Loss("silent", broken=self._stalls > 1, at_once=True))
        return self._done()

    def close(self, why: HalleyError | None = None) -> list[Effect]:
        if self.phase in ("opening", "live"):
            self._effects.append(Drop())
        if self.phase != "closed":
            self._end(why)
        return self._done()

    # ---- what they are made of ----

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _end(self, why: HalleyError | None) -> None:
        self.phase = "closed"
        self._phase_due = self._renew_at = float("inf")
        self._tell("closed", why)

    def _connect(self) -> None:
        now = self._now()
        if self._transport > 0 and now - self._worse_since > BEST_S:
            self._transport = 0
        if self._tokens == "none" or self._token:
            self._open()
            return
        self.phase = "asking"
        self._phase_due = now + ASK_S
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._effects.append(Ask())

    def _renew(self) -> None:
        self._renew_at = float("inf")
        if self.phase in ("live", "opening"):
            self._ask()
        else:
            # Nobody needs one while there is no session: the next connection asks.
            self._token = None

    def _not_renewed(self, why: HalleyError) -> None:
        """The session has its last token still; another one is asked for."""
        self._renew_at = self._now() + self._backoff(4)
        self._tell(self.state, why)

    def _open(self) -> None:
        self.phase = "opening"
        self._retry = None
        self._shown = self._token
        self._phase_due = self._now() + OPEN_S
        self._effects.append(Open(self.transport, self._token, self.cursor))

    def _go_on(self) -> None:
        """With a new token: in band, or by a new request with the cursor (http.md 14.7). A session
        is never another user's, so who has signed in since gets one of its own."""
        assert self._token is not None
        is_same = self._shown is None or user_of(self._shown) == user_of(self._token)
        self._shown = self._token
        if self.transport == "websocket" and is_same:
            self._effects.append(Renew(self._token))
            return
        self._effects.append(Drop())
        self._open()

    def _is_new_event(self, message: Mapping[str, Any]) -> bool:
        """A double may have an older cursor than what was shown, so it moves none."""
        event_id, at = str(message.get("id")), int(message.get("at") or 0)
        seen = self._recent.get(event_id)
        self._recent[event_id] = at
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        return seen is None or abs(at - seen) > DOUBLE_MS_MAX

    def _lose(self, loss: Loss) -> None:
        self._effects.append(Drop())
        self._fail(loss)

    def _fail(self, loss: Loss) -> None:
        now, was_live = self._now(), self.phase == "live"
        steady = was_live and now - self._live_at >= STEADY_S
        is_token = loss.status == 401 or loss.code == "token_expired"
        why = HalleyError(loss.code, loss.message, loss.status, loss.retry_after)
        final = loss.status in FINAL and loss.code != "http" and not loss.broken
        if final or loss.status == TOO_LONG or (is_token and self._tokens != "asked"):
            self._end(why)
            return
        # A token that was good before has had its time; one that is refused as it comes has not.
        at_once = (was_live or not self._is_new) if is_token else loss.at_once and steady
        if is_token and self._token == self._shown:
            self._token = None
        self._is_new = False
        wait = self._wait(loss, steady, at_once)
        if loss.broken:
            if self._transport == 0:
                self._worse_since = now
            self._transport = (self._transport + 1) % len(self._transports)
            self._stalls = 0
        self.phase = "waiting"
        self._phase_due = now + wait
        self._tell("connecting" if self.state == "connecting" else "reconnecting", why)

    def _wait(self, loss: Loss, steady: bool, at_once: bool) -> float:
        if steady:
            self._failures = 0
        if loss.retry_after is not None:
            # Whole seconds, for many at the same time: half of one more spreads them.
            wait = loss.retry_after + 0.5 * self._random()
        elif at_once:
            wait = 0.0
        elif steady:
            wait = self._retry if self._retry is not None else RETRY_S * self._spread()
        else:
            self._failures += 1
            wait = max(self._retry or 0.0, self._backoff(self._failures))
        if loss.code == "too_many_sessions":
            # A newer session of this user took the place: two that fight for it help nobody.
            wait = max(wait, WAIT_S_MAX * self._spread())
        return wait

    def _spread(self) -> float:
        return 0.5 + self._random()

    def _backoff(self, failures: int) -> float:
        return min(WAIT_S * 2.0 ** min(failures - 1, 16), WAIT_S_MAX) * self._spread()

    def _tell(self, state: State, why: HalleyError | None = None) -> None:
        if state != self.state or why is not None:
            self.state = state
            self._effects.append(Tell(state, why))
