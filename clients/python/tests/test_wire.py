"""Messages from bytes cut at any place; the meaning of refusals and answers."""

from __future__ import annotations

import base64
import json
import unittest

from halley.requests import event_of, is_passing, retry_wait, segment, take_results, with_id
from halley.transports import closed_by, loss_from, poll_messages
from halley.types import HalleyError, Loss, Presence, Published
from halley.wire import (
    Ndjson, Retry, Signal, Sse, lifetime_of, loss_of, presence_of, refusal,
)

STREAM = (
    b": welcome\nretry: 1500\nid: c0\n\n"
    b'id: c1\ndata: {"id":"e1","subject":"\xc3\xa4","at":1,"data":{"a":1}}\n\n'
    b'event: gap\nid: c2\ndata: {"gap":{"from":null,"to":2,"reason":"too_old"}}\n\n'
    b":\n\n"
)
MESSAGES: list[Signal] = [
    Retry(1.5), {"cursor": "c0"},
    {"id": "e1", "subject": "ä", "at": 1, "data": {"a": 1}, "cursor": "c1"},
    {"gap": {"from": None, "to": 2, "reason": "too_old"}, "cursor": "c2"},
    {},
]


class Streams(unittest.TestCase):
    def test_sse_is_the_same_however_it_is_cut(self) -> None:
        for size in (1, 2, 3, 7, 1_000):
            parser, found = Sse(), list[Signal]()
            for at in range(0, len(STREAM), size):
                found += parser.feed(STREAM[at:at + size])
            self.assertEqual(found, MESSAGES, f"in pieces of {size}")

    def test_half_an_event_is_none(self) -> None:
        half = b'id: c1\ndata: {"id":"e1"}\n'
        self.assertEqual(Sse().feed(half), [])
        self.assertEqual(Ndjson().feed(b'{"cursor":"c1"}'), [])

    def test_busy_is_a_refusal(self) -> None:
        self.assertEqual(Sse().feed(b": busy\nretry: 2500\n\n"), [Loss("busy", retry_after=2.5)])

    def test_ndjson_heartbeats_are_empty_lines(self) -> None:
        self.assertEqual(Ndjson().feed(b'{"cursor":"c"}\n\n'), [{"cursor": "c"}, {}])

    def test_what_is_no_message_is_a_loss(self) -> None:
        for text in (b"<html>\n", b"[1]\n", b'{"a":\n', b"\xff\n"):
            with self.assertRaises(ValueError) as caught:
                Ndjson().feed(text)
            self.assertTrue(loss_from(caught.exception).broken)

    def test_a_polls_gap_comes_before_its_events_and_its_cursor_behind_them(self) -> None:
        body = {"gap": {"reason": "x"}, "events": [{"id": 1}], "cursor": "c", "end": {"reason": 1}}
        self.assertEqual(poll_messages(body), [
            {"gap": {"reason": "x"}}, {"id": 1}, {"cursor": "c", "end": {"reason": 1}}])


class Refusals(unittest.TestCase):
    def test_halleys_own_and_those_of_others(self) -> None:
        body = '{"error":{"code":"busy","message":"later"}}'
        loss = loss_of(refusal(503, {"Retry-After": "7"}, body))
        self.assertEqual((loss.code, loss.retry_after, loss.broken), ("busy", 7.0, False))
        cases = ((400, True), (404, True), (502, False), (503, False))
        for status, broken in cases:
            with self.subTest(status=status):
                loss = loss_of(refusal(status, {}, "<html>"))
                self.assertEqual((loss.code, loss.broken), ("http", broken))
        self.assertTrue(loss_of(refusal(426, {}, body)).broken)

    def test_closes_say_their_code_first(self) -> None:
        self.assertEqual(closed_by(1001, "too_many_sessions: x", True).code, "too_many_sessions")
        self.assertEqual(closed_by(4401, "", True).code, "token_expired")
        self.assertEqual(closed_by(1000, "", True), Loss("closed", "closed with 1000"))
        self.assertTrue(closed_by(1002, "", False).broken)
        self.assertFalse(closed_by(1002, "", True).broken)

    def test_what_is_worth_another_try(self) -> None:
        for code, status, passing in (
            ("overloaded", 503, True), ("http", 502, True), ("too_many_requests", 429, True),
            ("bad_event", 400, False), ("right_missing", 403, False), ("too_many_ids", 507, False),
        ):
            self.assertEqual(is_passing(HalleyError(code, "", status)), passing, code)
        self.assertEqual([retry_wait(3.0, 9, 0.0), retry_wait(3.0, 0, 1.0)], [3.0, 3.5])
        self.assertEqual([retry_wait(None, n, 0.5) for n in (0, 1, 2, 99)], [0.5, 1, 2, 15])

    def test_an_event_has_what_it_was_given(self) -> None:
        for event in ({"subjects": ["a", "b"], "data": None, "id": "1"},
                      {"to": ["a"], "data": 1, "id": "1", "ack": "disk"},
                      {"subject": "", "data": 1, "id": "1", "keep": True}):
            self.assertEqual(with_id(event), event)
        self.assertEqual(with_id({"subject": "a", "data": 1, "keep": False, "ack": None}).keys(),
                         {"subject", "data", "id"})
        self.assertEqual(event_of(("a", "b"), 1, "1"), {"to": ["a", "b"], "data": 1, "id": "1"})

    def test_a_path_segment_is_one(self) -> None:
        self.assertEqual(segment("user", "a/b c?ä"), "a%2Fb%20c%3F%C3%A4")


class News(unittest.TestCase):
    def test_presence_has_what_users_say_of_themselves(self) -> None:
        for told, expected in (
            ({"subject": "a", "online": 2, "users": ["u", "v"], "states": {"u": {"is": "busy"}}},
             Presence("a", 2, ("u", "v"), states={"u": {"is": "busy"}})),
            ({"subject": "a", "online": 2_000, "users": None}, Presence("a", 2_000)),
            ({"subject": "a", "user": "u", "state": "join", "data": [1]},
             Presence("a", user="u", state="join", data=[1])),
            ({"subject": "a", "user": "u", "state": "update", "data": None},
             Presence("a", user="u", state="update")),
        ):
            self.assertEqual(presence_of(told), expected)


class Batches(unittest.TestCase):
    def test_answers_find_their_places_and_what_may_pass_is_left(self) -> None:
        results: list[Published | HalleyError | None] = [None] * 5
        text = '{"id":"b"}\n{"error":{"code":"overloaded"}}\n{"error":{"code":"bad_event"}}\n'
        self.assertEqual(take_results(text, [1, 2, 3, 4], results), [2, 4])
        self.assertEqual(results[1], Published("b"))
        self.assertEqual([type(one) for one in results[2:4]], [HalleyError, HalleyError])
        self.assertEqual(take_results('{"id":"c"}\n{"id":"e"}\n', [2, 4], results), [])
        self.assertEqual(results[2], Published("c"))
        self.assertIsNone(results[0])


def token(**claims: object) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"x.{part}.y"


class Lifetimes(unittest.TestCase):
    def test_by_the_clock_by_iat_or_not_at_all(self) -> None:
        self.assertEqual(lifetime_of(token(exp=1_100), 1_000), 100)
        self.assertEqual(lifetime_of(token(exp=1_100, iat=1_050), 900), 50)
        self.assertEqual(lifetime_of(token(exp=1_100, iat=1_000), 5_000), 60)
        for text in ("", "opaque", "a.b.c", token(), token(exp="soon"), "x.bnVsbA.y"):
            self.assertIsNone(lifetime_of(text, 1_000), text)


if __name__ == "__main__":
    unittest.main()
