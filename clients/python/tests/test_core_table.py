"""The state machine against the table that all languages share (test/clients/core.json)."""

from __future__ import annotations

import json
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halley.machine import Ask, Drop, Effect, Machine, Open, Renew, Show, Tell
from halley.types import Event, Gap, Loss

TABLE = Path(__file__).parents[3] / "test/clients/core.json"
TRANSPORTS = ["websocket", "sse", "ndjson", "poll"]
Step = dict[str, Any]


class World:
    """A machine with a clock that stands still until a step moves it."""

    def __init__(
        self, transports: list[str] = TRANSPORTS, tokens: Any = "none", token: str | None = None,
        cursor: str | None = None, silence_s: float = 75, random: float = 0.5,
    ) -> None:
        self.at = 0.0
        self.machine = machine = Machine(
            transports=tuple(transports), now=lambda: self.at, random=lambda: random,
            tokens=tokens, token=token, cursor=cursor, silence=silence_s)
        self._inputs: dict[str, Callable[[Step], list[Effect]]] = {
            "start": lambda _: machine.start(),
            "heard": lambda _: machine.heard(),
            "message": lambda step: machine.message(step["message"]),
            "retry": lambda step: machine.retry(step["s"]),
            "lost": lambda step: machine.lost(loss(**step["loss"])),
            "token": lambda step: machine.token(step["token"], step.get("life_s")),
            "token_failed": lambda _: machine.token_failed("it failed"),
            "close": lambda _: machine.close(),
            "pass": self._pass,
            "wait": self._wait,
        }

    def _pass(self, step: Step) -> list[Effect]:
        self.at += step["s"]
        assert self.machine.due > self.at, "something was due"
        return []

    def _wait(self, step: Step) -> list[Effect]:
        seconds = self.machine.due - self.at
        assert abs(seconds - step["s"]) < 0.001, f"{seconds} s, not {step['s']}"
        self.at = self.machine.due
        return self.machine.tick()

    def do(self, step: Step) -> Step:
        done: Step = {"calls": [], "states": [], "shown": []}
        for effect in self._inputs[step["do"]](step):
            match effect:
                case Open(transport, token, cursor):
                    done["calls"].append(["open", transport, token, cursor])
                case Drop():
                    done["calls"].append(["drop"])
                case Ask():
                    done["calls"].append(["ask"])
                case Renew(token):
                    done["calls"].append(["renew", token])
                case Show(Event() as item):
                    done["shown"].append(item.id)
                case Show(Gap() as item):
                    done["shown"].append(f"gap {item.reason}")
                case Tell(state, why):
                    done["states"].append([state, why.code if why else None])
        return done | {"cursor": self.machine.cursor}


def loss(code: str, status: int | None = None, retry_after_s: float | None = None,
         broken: bool = False) -> Loss:
    return Loss(code, status=status, retry_after=retry_after_s, broken=broken)


class Table(unittest.TestCase):
    def test_each_case(self) -> None:
        cases = json.loads(TABLE.read_text())
        self.assertGreater(len(cases), 20)
        for case in cases:
            with self.subTest(case["name"]):
                world = World(**case["given"])
                for n, step in enumerate(case["steps"]):
                    done = world.do(step)
                    expected = {name: step.get(name, []) for name in ("calls", "states", "shown")}
                    expected["cursor"] = step.get("cursor", done["cursor"])
                    self.assertEqual(done, expected, f"step {n}: {step}")


if __name__ == "__main__":
    unittest.main()
