"""The state machine alone; clock and chance are the test's. docs/guides/write-a-client.md."""

from __future__ import annotations

import base64
import json
import unittest
from typing import Any

from halley.machine import (
    ASK_S, BEST_S, DOUBLE_MS_MAX, OPEN_S, RECENT_MAX, STEADY_S, WAIT_S_MAX, Ask, Drop, Effect,
    Machine, Open, Renew, Show, Tell,
)
from halley.types import Event, Gap, Loss
from halley.wire import loss_of, refusal


class World:
    """A machine with a clock that stands still until it is moved."""

    def __init__(self, *transports: str, **options: Any) -> None:
        self.at = 1_000.0
        self.chance = 0.5
        self.machine = Machine(
            transports=transports or ("websocket", "sse", "poll"), now=lambda: self.at,
            random=lambda: self.chance, **options)

    def go(self, seconds: float) -> list[Effect]:
        self.at += seconds
        return self.machine.tick()

    def wait(self) -> tuple[float, list[Effect]]:
        """To the next thing that is due: after how many seconds, and what is done then."""
        seconds = self.machine.due - self.at
        return seconds, self.go(seconds)

    def live(self, seconds: float = 0.0) -> None:
        if self.machine.phase == "new":
            self.machine.start()
        self.machine.message({"cursor": "c0"})
        self.at += seconds


def token_of(**claims: object) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"x.{part}.y"


def event(name: str, at: int = 1) -> dict[str, Any]:
    return {"id": name, "subject": "ann", "at": at, "data": name, "cursor": f"c-{name}"}


def shown(effects: list[Effect]) -> list[str]:
    return [e.item.id for e in effects if isinstance(e, Show) and isinstance(e.item, Event)]


class Connecting(unittest.TestCase):
    def test_opens_at_once_and_is_open_when_something_was_heard(self) -> None:
        world = World(cursor="mine")
        self.assertEqual(world.machine.start(), [Open("websocket", None, "mine")])
        self.assertEqual(world.machine.state, "connecting")
        self.assertEqual(world.machine.message({"cursor": "c0"}), [Tell("open", None)])
        self.assertEqual(world.machine.cursor, "c0")

    def test_waits_grow_to_a_bound_and_are_spread(self) -> None:
        for chance, first, last in ((0.0, 0.5, 15.0), (0.5, 1.0, 30.0), (0.999, 1.5, 45.0)):
            world = World("sse")
            world.chance = chance
            world.machine.start()
            waits = []
            for _ in range(9):
                world.machine.lost(Loss("unreachable"))
                waits.append(world.wait()[0])
            self.assertAlmostEqual(waits[0], first, places=2)
            self.assertEqual(waits, sorted(waits))
            self.assertAlmostEqual(waits[-1], last, delta=0.1)

    def test_a_connection_that_was_steady_starts_the_waits_anew(self) -> None:
        world = World("sse")
        world.machine.start()
        for _ in range(6):
            world.machine.lost(Loss("unreachable"))
            world.wait()
        world.live(STEADY_S)
        world.machine.retry(1.25)
        world.machine.lost(Loss("closed"))
        self.assertAlmostEqual(world.wait()[0], 1.25)
        world.machine.lost(Loss("unreachable"))
        self.assertAlmostEqual(world.wait()[0], 1.0)

    def test_one_that_flaps_does_not(self) -> None:
        world = World("sse")
        world.machine.start()
        waits = []
        for _ in range(5):
            world.live(STEADY_S / 2)
            world.machine.lost(Loss("closed"))
            waits.append(world.wait()[0])
        self.assertEqual(waits, [1, 2, 4, 8, 16])

    def test_what_the_server_says_is_kept_to(self) -> None:
        for chance in (0.0, 0.999):
            world = World()
            world.chance = chance
            world.machine.start()
            world.machine.lost(Loss("busy", status=503, retry_after=7))
            wait, effects = world.wait()
            self.assertTrue(7 <= wait <= 7.5, wait)
            self.assertEqual(effects, [Open("websocket", None, None)])

    def test_each_status(self) -> None:
        """What ends, what is tried again by the same transport, and what by the next one; said by
        Halley, then by somebody between. A table for all languages, but for a browser's fetch."""
        ends, again, next_one = "closed", "websocket", "sse"
        table = {
            400: (ends, next_one), 401: (ends, ends), 403: (ends, next_one), 404: (ends, next_one),
            405: (next_one, next_one), 407: (again, next_one), 408: (again, next_one),
            409: (again, next_one), 413: (ends, next_one), 414: (ends, ends),
            415: (again, next_one), 421: (again, next_one), 425: (again, next_one),
            426: (next_one, next_one), 429: (again, next_one), 431: (ends, next_one),
            451: (again, next_one), 500: (again, again), 501: (again, again), 502: (again, again),
            503: (again, again), 504: (again, again), 505: (again, again), 511: (again, again),
        }
        halleys = json.dumps({"error": {"code": "a_code", "message": "no"}})
        for status, expected in table.items():
            for body, result in zip((halleys, "<html>no</html>"), expected, strict=True):
                world = World("websocket", "sse")
                world.machine.start()
                world.machine.lost(loss_of(refusal(status, {}, body)))
                is_closed = world.machine.state == ends
                with self.subTest(status=status, body=body):
                    self.assertEqual(ends if is_closed else world.machine.transport, result)
                    self.assertEqual(world.machine.due == float("inf"), is_closed)

    def test_refusals_that_no_waiting_changes_are_the_end(self) -> None:
        for status in (400, 403, 404, 413, 414, 431):
            world = World()
            world.machine.start()
            effects = world.machine.lost(Loss("other_user", status=status))
            self.assertEqual(effects[0], Drop())
            self.assertEqual(len(effects), 2)
            self.assertEqual(world.machine.state, "closed")
            self.assertEqual(world.machine.due, float("inf"))
            self.assertEqual(world.machine.message(event("e1")), [])

    def test_between_two_opens_there_is_a_drop(self) -> None:
        world = World("sse", tokens="asked")
        effects = world.machine.start() + world.machine.token("t1", 100)
        for _ in range(3):
            effects += world.machine.message({"cursor": "c"})
            effects += world.go(91) + world.machine.token("t2", 100)
            effects += world.machine.lost(Loss("closed")) + world.wait()[1]
        order = [type(e) for e in effects if isinstance(e, (Open, Drop))]
        self.assertEqual(order[::2], [Open] * len(order[::2]))
        self.assertEqual(order[1::2], [Drop] * len(order[1::2]))

    def test_a_session_too_many_stays_away(self) -> None:
        world = World()
        world.chance = 0.0
        world.live(STEADY_S)
        world.machine.lost(Loss("too_many_sessions"))
        self.assertGreaterEqual(world.wait()[0], WAIT_S_MAX / 2)


class Transports(unittest.TestCase):
    def test_a_broken_one_gives_way_and_is_tried_again_later(self) -> None:
        world = World()
        world.machine.start()
        world.machine.lost(Loss("http", status=400, broken=True))
        self.assertEqual(world.wait()[1], [Open("sse", None, None)])
        world.live(60)
        world.machine.lost(Loss("closed"))
        self.assertEqual(world.wait()[1], [Open("sse", None, "c0")])
        world.live(BEST_S)
        world.machine.lost(Loss("closed"))
        self.assertEqual(world.wait()[1], [Open("websocket", None, "c0")])

    def test_one_that_opens_nothing_in_time_is_broken(self) -> None:
        world = World()
        world.machine.start()
        wait, effects = world.wait()
        self.assertEqual(wait, OPEN_S)
        self.assertEqual(effects[0], Drop())
        self.assertEqual(world.wait()[1], [Open("sse", None, None)])

    def test_no_network_is_not_the_transports_fault(self) -> None:
        world = World()
        world.machine.start()
        world.machine.lost(Loss("unreachable"))
        self.assertEqual(world.wait()[1], [Open("websocket", None, None)])

    def test_silence_is_a_loss_and_twice_a_broken_transport(self) -> None:
        world = World(silence=20)
        world.live()
        wait, effects = world.wait()
        self.assertEqual((wait, effects[0]), (20, Drop()))
        self.assertEqual(world.wait()[1], [Open("websocket", None, "c0")])
        world.live()
        world.wait()
        self.assertEqual(world.wait()[1], [Open("sse", None, "c0")])

    def test_heartbeats_are_no_silence_and_a_reader_that_pauses_is_not_silent(self) -> None:
        world = World(silence=20)
        world.live()
        for _ in range(5):
            self.assertEqual(world.go(19), [])
            world.machine.message({})
        world.machine.pause()
        self.assertEqual(world.machine.due, float("inf"))
        world.machine.heard()
        self.assertEqual(world.machine.due, world.at + 20)


class Showing(unittest.TestCase):
    def test_an_event_may_be_about_several_subjects(self) -> None:
        world = World()
        world.live()
        joint = {"id": "a", "subjects": ["x", "y"], "at": 1, "data": 7, "cursor": "c1"}
        (show,) = [e for e in world.machine.message(joint) if isinstance(e, Show)]
        self.assertEqual(show.item, Event("a", None, 1, 7, subjects=("x", "y")))

    def test_a_private_event_has_no_subject(self) -> None:
        world = World()
        world.live()
        private = {"id": "a", "private": True, "at": 1, "data": 7, "cursor": "c1"}
        (show,) = [e for e in world.machine.message(private) if isinstance(e, Show)]
        self.assertEqual(show.item, Event("a", None, 1, 7))

    def test_each_event_once_and_the_cursor_with_it(self) -> None:
        world = World()
        world.live()
        self.assertEqual(shown(world.machine.message(event("e1"))), ["e1"])
        self.assertEqual(world.machine.cursor, "c-e1")
        world.machine.lost(Loss("cut"))
        self.assertEqual(world.wait()[1], [Open("websocket", None, "c-e1")])
        self.assertEqual(shown(world.machine.message({**event("e1"), "cursor": "c2"})), [])
        self.assertEqual(world.machine.cursor, "c-e1", "a double's may be an older one")

    def test_an_id_that_is_used_anew_is_another_event(self) -> None:
        world = World()
        world.live()
        world.machine.message(event("daily", 1))
        again = world.machine.message(event("daily", 2 + DOUBLE_MS_MAX))
        self.assertEqual(shown(again), ["daily"])

    def test_what_it_remembers_is_bounded(self) -> None:
        world = World()
        world.live()
        for n in range(RECENT_MAX + 1):
            world.machine.message(event(str(n)))
        self.assertEqual(shown(world.machine.message(event("1"))), [])
        self.assertEqual(shown(world.machine.message(event("0"))), ["0"])

    def test_a_gap_is_an_item_of_its_own(self) -> None:
        world = World()
        world.live()
        effects = world.machine.message(
            {"cursor": "c1", "gap": {"from": 1, "to": None, "reason": "too_old"}})
        self.assertEqual(effects, [Show(Gap(1, None, "too_old"))])
        self.assertEqual(world.machine.cursor, "c1")

    def test_after_the_end_of_a_connection_nothing_counts(self) -> None:
        world = World()
        world.live()
        world.machine.lost(Loss("closed"))
        self.assertEqual(world.machine.message(event("late")), [])
        self.assertEqual(world.machine.cursor, "c0")


class Tokens(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World(tokens="asked")
        self.assertEqual(self.world.machine.start(), [Ask()])

    def test_asks_first_and_renews_in_band_in_time(self) -> None:
        machine = self.world.machine
        self.assertEqual(machine.token("t1", 100), [Open("websocket", "t1", None)])
        machine.message({"cursor": "c0"})
        wait, effects = self.world.wait()
        self.assertTrue(75 <= wait <= 90, wait)
        self.assertEqual(effects, [Ask()])
        self.assertEqual(machine.token("t2", 100), [Renew("t2")])

    def test_a_token_of_another_user_gets_a_session_of_its_own(self) -> None:
        """http.md 14.7: a session is never another user's."""
        ann, again, bob, opaque = (token_of(sub="ann"), token_of(sub="ann", iat=1),
                                   token_of(sub="bob"), "opaque")
        machine = self.world.machine
        machine.token(ann, 100)
        machine.message({"cursor": "c0"})
        self.assertEqual(machine.token(again, 100), [Renew(again)])
        self.assertEqual(machine.token(bob, 100), [Drop(), Open("websocket", bob, "c0")])
        machine.message({"cursor": "c1"})
        self.assertEqual(machine.token(opaque, 100), [Drop(), Open("websocket", opaque, "c1")])
        machine.message({"cursor": "c2"})
        self.assertEqual(machine.token("opaque too", 100), [Renew("opaque too")])

    def test_a_callback_that_fails_while_live_is_told_and_asked_again(self) -> None:
        machine = self.world.machine
        machine.token("t1", 100)
        machine.message({"cursor": "c0"})
        self.world.wait()
        told = machine.token_failed("down")
        self.assertEqual(
            [(one.state, one.why.code, one.why.message) for one in told
             if isinstance(one, Tell) and one.why], [("open", "token_callback", "down")])
        self.assertEqual(self.world.wait()[1], [Ask()])
        self.assertEqual(machine.phase, "live")

    def test_renews_by_a_new_request_where_there_is_no_way_back(self) -> None:
        world = World("sse", tokens="asked")
        world.machine.start()
        world.machine.token("t1", 100)
        world.machine.message({"cursor": "c0"})
        world.wait()
        self.assertEqual(world.machine.token("t2", 100), [Drop(), Open("sse", "t2", "c0")])

    def test_expired_asks_at_once_and_a_refused_new_one_waits(self) -> None:
        machine = self.world.machine
        machine.token("t1", 100)
        machine.message({"cursor": "c0"})
        machine.message({"end": {"reason": "token_expired"}})
        self.assertEqual(self.world.wait(), (0, [Ask()]))
        self.assertEqual(machine.token("t2", 100), [Open("websocket", "t2", "c0")])
        machine.lost(Loss("token_signature", status=401))
        wait, effects = self.world.wait()
        self.assertGreaterEqual(wait, 0.5)
        self.assertEqual(effects, [Ask()])

    def test_a_callback_that_fails_or_hangs_is_asked_again(self) -> None:
        machine = self.world.machine
        machine.token_failed("down")
        wait, effects = self.world.wait()
        self.assertEqual((wait, effects), (1.0, [Ask()]))
        wait, _ = self.world.wait()
        self.assertEqual(wait, ASK_S)
        self.assertEqual(self.world.wait(), (2.0, [Ask()]))

    def test_a_renewal_that_is_refused_in_band_is_tried_again_and_ends_nothing(self) -> None:
        machine = self.world.machine
        machine.token("t1", 100)
        machine.message({"cursor": "c0"})
        self.world.wait()
        machine.token("t2", 100)
        told = machine.message({"error": {"code": "token_signature"}})
        self.assertEqual([(one.state, one.why.code) for one in told
                          if isinstance(one, Tell) and one.why], [("open", "token_signature")])
        self.assertEqual(machine.phase, "live")
        wait, effects = self.world.wait()
        self.assertLess(wait, 30)
        self.assertEqual(effects, [Ask()])

    def test_a_late_answer_to_something_else_renews_nothing(self) -> None:
        machine = self.world.machine
        machine.token("t1", 100)
        machine.message({"cursor": "c0"})
        due = machine.due
        machine.message({"ref": "r1", "error": {"code": "right_missing"}})
        self.assertEqual(machine.due, due)

    def test_none_is_signed_out(self) -> None:
        effects = self.world.machine.token(None, None)
        self.assertIsInstance(effects[-1], Tell)
        self.assertEqual(self.world.machine.state, "closed")

    def test_a_fixed_one_that_is_refused_is_the_end(self) -> None:
        world = World(tokens="fixed", token="t")
        self.assertEqual(world.machine.start(), [Open("websocket", "t", None)])
        world.machine.lost(Loss("token_expired", status=401))
        self.assertEqual(world.machine.state, "closed")


if __name__ == "__main__":
    unittest.main()
