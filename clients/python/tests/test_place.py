"""The subjects that a stream is opened with."""

from __future__ import annotations

import unittest
from typing import cast

import aiohttp
from halley.transports import Place

HTTP = cast("aiohttp.ClientSession", None)


class Query(unittest.TestCase):
    def test_the_newest_first_unless_there_is_a_cursor(self) -> None:
        new = Place(HTTP, "", "bob", None, None, ("room/7", "a,b"), 20)
        self.assertEqual(new.query(), [("user", "bob"), ("last", "20"), ("subject", "room/7"),
                                       ("subject", "a,b")])
        back = Place(HTTP, "", "bob", None, "c1", ("room/7",), 20)
        self.assertEqual(back.query(), [("user", "bob"), ("cursor", "c1"), ("subject", "room/7")])

    def test_presence_is_asked_for_but_by_polls(self) -> None:
        place = Place(HTTP, "", "bob", None, "c1", ("room/7",), presence=("room/7", "*"))
        self.assertEqual(place.query(), [("user", "bob"), ("cursor", "c1"),
                                         ("presence", "room/7,*"), ("subject", "room/7")])
        self.assertNotIn("presence", dict(place.query(timeout="0", presence="")))

    def test_of_nothing_there_is_no_newest(self) -> None:
        self.assertEqual(Place(HTTP, "", "bob", None, None, (), 20).query(), [("user", "bob")])


if __name__ == "__main__":
    unittest.main()
