"""The client of a server at a real API listener: `server_story.py URL`; test/system runs it."""

from __future__ import annotations

import asyncio
import sys

import halley

EVENTS = 2_500


async def main(url: str) -> None:
    async with halley.server(url) as server:
        pairs = [(f"user {n}", "story/1") for n in range(1_200)]
        assert await server.follow(*pairs) == {"added": 1_200, "already": 0}
        assert await server.follow(pairs[0]) == {"added": 0, "already": 1}
        followers = [user async for user in server.followers("story/1")]
        assert sorted(followers) == sorted(user for user, _ in pairs), len(followers)
        assert [one async for one in server.following("user 7")] == ["story/1"]
        assert await server.unfollow(pairs[0]) == {"removed": 1, "absent": 0}

        first = await server.publish("story/1", {"n": 1}, id="story-1")
        again = await server.publish("story/1", {"n": 2}, id="story-1")
        assert first == again == halley.Published("story-1", 0), (first, again)
        events = [{"subject": "story/1", "data": n, "id": f"many-{n}"} for n in range(EVENTS)]
        events[1_700] = {"subject": "", "data": 1}
        results = await server.publish_many(events)
        assert len(results) == EVENTS
        for n, result in enumerate(results):
            if n == 1_700:
                assert isinstance(result, halley.HalleyError) and result.code == "bad_subject"
            else:
                assert result == halley.Published(f"many-{n}", 0), result

        others = await server.publish_many([
            {"subjects": ["story/1", "story/2"], "data": 1, "id": "both"},
            {"to": ["user 7", "user 8"], "data": None, "id": "private", "ack": "disk"},
            {"subject": "story/3", "data": 1, "id": "kept", "keep": True},
            {"subject": "story/3", "to": ["user 7"], "data": 1}])
        assert [one.id for one in others[:3] if isinstance(one, halley.Published)] == [
            "both", "private", "kept"], others
        assert isinstance(others[3], halley.HalleyError) and others[3].code == "bad_event", others
        both = await server.publish({"subjects": ["story/1", "story/2"]}, 1)
        kept = await server.publish("story/2", {"goals": 1}, keep=True)
        assert both.id != kept.id

        presence = await server.presence("user 7")
        assert presence["online"] is False and presence["following"] == 1, presence
        assert await server.close_sessions("user 7") == 0
        try:
            await server.unfollow(("user 7", "user 7"))
        except halley.HalleyError as error:
            assert error.code == "self", error
        else:
            raise AssertionError("a user can't unfollow itself")
    print("all holds")


asyncio.run(main(sys.argv[1]))
