"""Peers as the workloads see them: processes that are asked one thing after the other."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.framework import Usage
from bench.peers.engine import Setting

_ROOT = Path(__file__).resolve().parents[2]


class PeerFailed(Exception):
    """A peer could not do what it was asked for."""

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(message)
        self.peer = peer


@dataclass(frozen=True, slots=True)
class Answer:
    value: Any
    usage: Usage


class Peer:
    """A peer in a process of its own, which is started when it is first asked for something, or before."""

    def __init__(self, name: str, engine: str, setting: Setting, *, log: Path) -> None:
        self.name = name
        self.engine = engine
        self._setting = setting
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, verb: str, **needs: Any) -> Answer:
        process = self._process or self.start()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # It has ended, which its answer tells.
            process.stdin.write(json.dumps({"verb": verb, "needs": msgspec.to_builtins(needs)}) + "\n")
            process.stdin.flush()
        found = self._answer(process)
        return Answer(found["value"], msgspec.convert(found["usage"], Usage))

    def start(self) -> "subprocess.Popen[str]":
        """Does not wait: the first question does."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        setting = msgspec.json.encode(self._setting).decode()
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.process", self.engine, setting],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=_ROOT,
            )
        return self._process

    def end(self) -> None:
        """Let the process go; the next question starts another."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _answer(self, process: "subprocess.Popen[str]") -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self._process = None
            raise PeerFailed(self.name, f"{self.name} ended with {process.wait()}; see {self._log}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise PeerFailed(self.name, f"{self.name}: {found['error']}; see {self._log}")
        return found


class ReportedMeter:
    """Takes what the act itself says it took: the peers measure themselves."""

    def measure(self, act: Callable[[], object]) -> Usage:
        answer = act()
        assert isinstance(answer, Answer)
        return answer.usage
