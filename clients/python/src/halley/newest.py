"""The newest events about a subject that is subscribed to while the client lives (http.md 25).

In band they come in the answer, and live events may come before that answer. So live events are
held until then, and the older ones are shown first. They are held for one connection; if that is
lost, the next one brings them again, as the cursor doesn't cover them yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from .wire import Message

#: Beyond it nothing is held any more: what is older comes behind it then.
HELD_MAX = 1_000


class Held:
    def __init__(self) -> None:
        #: What was asked for and has no answer yet.
        self._refs: set[str] = set()
        self._messages: list[Message] = []

    def begin(self, ref: str) -> None:
        self._refs.add(ref)

    def passes(self, message: Message) -> list[Message]:
        """What is to be dealt with now that this came. The end of a session doesn't wait, nor that
        of a subscription: behind the answer it would end what was granted by that."""
        if not self._refs or "end" in message or "ended" in message:
            return [message]
        self._messages.append(message)
        return self._all() if len(self._messages) > HELD_MAX else []

    def answered(self, ref: str, answer: Message | None) -> list[Message]:
        """What is to be dealt with now that this was answered, or won't be."""
        if ref not in self._refs:
            return []
        self._refs.discard(ref)
        older = [*messages_of((answer or {}).get("ok") or {})]
        return older if self._refs else older + self._all()

    def clear(self) -> None:
        self._refs.clear()
        self._messages.clear()

    def _all(self) -> list[Message]:
        messages, self._messages = self._messages, []
        self._refs.clear()
        return messages


def messages_of(page: Message) -> Iterator[Message]:
    """The gaps and events of a page, as a stream would have them: without cursors."""
    for gap in page.get("gaps") or ([page["gap"]] if page.get("gap") else []):
        yield {"gap": gap}
    yield from page.get("events") or []


def is_about(message: Message, subject: str) -> bool:
    return "gap" in message or subject in (message.get("subject"), *message.get("subjects", ()))
