"""Feeding inputs to a function, with a count of what came of them and bounds on what each may take."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

SECONDS_MAX = 2.0
"""One input; nothing here is so large that it takes a tenth of that."""
GROWTH_MAX = 256 << 20
"""Bytes, over all inputs of one kind."""


@dataclass
class Tally:
    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    grown_bytes: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)

    def feed(
        self,
        kind: str,
        act: Callable[[object], object],
        inputs: Iterable[object],
        refusals: tuple[type[Exception], ...],
        *,
        seconds_max: float = SECONDS_MAX,
        processes: tuple[int, ...] = (),
    ) -> None:
        """Any other exception than a refusal, a long time or much memory fails the test.

        `processes`: those that do the work for this one, and may grow as little.
        """
        before = _peak_bytes()
        before_each = {pid: _peak_bytes_of(pid) for pid in processes}
        for content in inputs:
            self.inputs += 1
            self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
            began = time.perf_counter()
            try:
                act(content)
            except refusals:
                self.refused += 1
            except Exception as error:
                raise AssertionError(f"{kind}: {type(error).__name__} for {_shown(content)}") from error
            took_s = time.perf_counter() - began
            assert took_s < seconds_max, f"{kind}: {took_s:.1f} s for {_shown(content)}"
            self.slowest_s = max(self.slowest_s, took_s)
        grown = _peak_bytes() - before
        assert grown < GROWTH_MAX, f"{kind}: the process grew by {grown >> 20} MB"
        self.grown_bytes = max(self.grown_bytes, grown)
        for pid, peak in before_each.items():
            grown = _peak_bytes_of(pid) - peak
            assert grown < GROWTH_MAX, f"{kind}: a process behind it grew by {grown >> 20} MB"
            self.grown_bytes = max(self.grown_bytes, grown)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.by_kind.items())
        return (
            f"fuzzing: {self.inputs:,} inputs ({kinds}), {self.refused:,} refused by name, 0 untyped errors, "
            f"0 hangs (slowest {self.slowest_s:.2f} s), at most {self.grown_bytes >> 20} MB more memory"
        )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _peak_bytes_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _shown(content: object) -> str:
    text = repr(content)
    return text if len(text) <= 4000 else f"{text[:4000]} … ({len(text)} characters)"
