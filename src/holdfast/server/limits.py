"""Limits on what one caller may ask: sizes, depths, rates, and how much at a time."""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import anyio
import anyio.to_thread

from holdfast.clock import Clock
from holdfast.errors import InvalidRequest
from holdfast.server.errors import TooLarge, TooMany

Result = TypeVar("Result")

_CALLERS_MAX = 10_000
_MINUTE_MS = 60_000
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[{\]}]")
_WAITING_PER_SLOT = 8


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_ms: int


class RateLimit:
    """So many requests a second for each caller, with bursts of two seconds' worth."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_ms = per_second / 1000
        self._most = max(1.0, per_second * 2)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = Lock()

    def admit(self, caller: str) -> None:
        """`TooMany` if the caller has used up its share."""
        now_ms = self._clock.elapsed_ms()
        with self._lock:
            bucket = self._buckets.setdefault(caller, _Bucket(self._most, now_ms))
            self._buckets.move_to_end(caller)
            while len(self._buckets) > _CALLERS_MAX:
                self._buckets.popitem(last=False)
            bucket.tokens = min(self._most, bucket.tokens + (now_ms - bucket.at_ms) * self._per_ms)
            bucket.at_ms = now_ms
            if bucket.tokens < 1:
                raise TooMany("too many requests", code="TOO_MANY_REQUESTS", hint="wait a second")
            bucket.tokens -= 1


class FailureLimit:
    """So many failed logins a minute from each address; then none is looked at for the rest of it."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._most = per_minute
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = Lock()

    def refuse_if_reached(self, client: str) -> None:
        with self._lock:
            since_ms, count = self._failures.get(client, (0, 0))
            if count >= self._most and self._clock.elapsed_ms() - since_ms < _MINUTE_MS:
                raise TooMany("too many failed logins", code="TOO_MANY_FAILED_LOGINS", hint="wait a minute")

    def count(self, client: str) -> None:
        now_ms = self._clock.elapsed_ms()
        with self._lock:
            since_ms, count = self._failures.get(client, (now_ms, 0))
            fresh = now_ms - since_ms >= _MINUTE_MS
            self._failures[client] = (now_ms, 1) if fresh else (since_ms, count + 1)
            self._failures.move_to_end(client)
            while len(self._failures) > _CALLERS_MAX:
                self._failures.popitem(last=False)


class Slots:
    """So many calls at a time, each in a thread; a few more wait their turn, the rest are turned away."""

    def __init__(self, count: int, what: str) -> None:
        self._limiter = anyio.CapacityLimiter(count)
        self._most = count * (1 + _WAITING_PER_SLOT)
        self._present = 0
        self._what = what

    @property
    def busy(self) -> int:
        return int(self._limiter.borrowed_tokens)

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        if self._present >= self._most:
            raise TooMany(f"too many {self._what} at a time", code="TOO_MANY_AT_ONCE", hint="wait a second")
        self._present += 1
        try:
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        finally:
            self._present -= 1


def check_declared_size(declared: str | None, most_bytes: int) -> None:
    """Refuse a body by the size it announces, before any of it is read."""
    if declared is not None and declared.isdigit() and int(declared) > most_bytes:
        raise too_large(most_bytes)


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge("the body is too large", limit_bytes=most_bytes, code="BODY_TOO_LARGE")


def check_depth(body: bytes, most: int) -> None:
    """Refuse JSON that nests deeper than `most`, without decoding it."""
    depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        if depth > most:
            raise InvalidRequest("the JSON nests too deeply", limit=most, code="JSON_TOO_DEEP")
