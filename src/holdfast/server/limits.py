"""Limits on what one caller may ask: sizes, depths, rates, and how much at a time."""

import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import numpy as np

from holdfast.clock import Clock
from holdfast.config.server import ServerSettings
from holdfast.errors import InvalidRequest
from holdfast.server.errors import TooLarge, TooLate, TooMany

Result = TypeVar("Result")

_CALLERS_MAX = 10_000
_MINUTE_MS = 60_000
_NETWORK_BITS = 64
_DEPTH_PIECE = 256 * 1024
_QUOTE, _BACKSLASH = b'"\\'
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_WAITING_PER_SLOT = 8
_CALLS_AT_ONCE = 64
_DOWNLOADS_AT_ONCE = 64
_SHARES = 4
"""One user may take one part in four of the places for calls, downloads and ends in the background."""
_ANSWERS = 4
"""How many of the largest answers may wait in memory for clients that read slowly."""
_LISTING_BYTES = 64 * 1024**2
"""Answers that are no queries' may be as large, whatever is configured for those: a list of many segments."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_ms: int


class RateLimit:
    """A bound of requests per second for each caller; a burst may be those of two seconds."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_ms = per_second / 1000
        self._most = max(1.0, per_second * 2)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = Lock()

    def admit(self, caller: str) -> None:
        """`TooMany` if the caller has used up its share."""
        now_ms = self._clock.monotonic_ms()
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


def network_of(client: str) -> str:
    """An IPv4 address, or the network of an IPv6 one: its owner has all addresses in it."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False))


class FailureLimit:
    """A bound of failed logins per minute from each network; beyond it, logins are refused until the next."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._most = per_minute
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = Lock()

    def count(self, client: str) -> None:
        """Count a login as failed before it is looked at, so that many at once are counted; or refuse it."""
        now_ms, network = self._clock.monotonic_ms(), network_of(client)
        with self._lock:
            since_ms, count = self._failures.get(network, (now_ms, 0))
            if now_ms - since_ms >= _MINUTE_MS:
                since_ms, count = now_ms, 0
            if count >= self._most:
                raise TooMany("too many failed logins", code="TOO_MANY_FAILED_LOGINS", hint="wait a minute")
            self._failures[network] = since_ms, count + 1
            self._failures.move_to_end(network)
            while len(self._failures) > _CALLERS_MAX:
                self._failures.popitem(last=False)

    def forgive(self, client: str) -> None:
        """The login that was counted last from there did not fail."""
        with self._lock:
            since_ms, count = self._failures.get(network_of(client), (0, 0))
            if count:
                self._failures[network_of(client)] = since_ms, count - 1


class Slots:
    """A bound of calls at a time, each in a thread. A few more wait for a place, the rest are refused.

    Where a share is given, no caller has more of them than that, so that one
    who asks for much leaves a place for others.
    """

    def __init__(self, count: int, what: str, *, share: int | None = None) -> None:
        self._limiter = anyio.CapacityLimiter(count)
        self._threads = anyio.CapacityLimiter(count)
        self._most = count * (1 + _WAITING_PER_SLOT)
        self._share = share
        self._by_caller: dict[str, _Share] = {}
        self._present = 0
        self._what = what

    @property
    def busy(self) -> int:
        return int(self._limiter.borrowed_tokens)

    async def run(
        self,
        caller: str | None,
        function: Callable[..., Result],
        *arguments: object,
        deadline_s: float | None = None,
    ) -> Result:
        """What the function returns.

        `TooLate` if no place was free until the deadline, a moment of `time.monotonic`.
        """
        if self._present >= self._most:
            raise self._too_many()
        self._present += 1
        try:
            if caller is None or self._share is None:
                return await self._run(None, deadline_s, function, *arguments)
            return await self._run_in_share(caller, self._share, deadline_s, function, *arguments)
        finally:
            self._present -= 1

    async def _run_in_share(
        self,
        caller: str,
        count: int,
        deadline_s: float | None,
        function: Callable[..., Result],
        *arguments: object,
    ) -> Result:
        share = self._by_caller.setdefault(caller, _Share(anyio.Semaphore(count)))
        if share.present >= count * (1 + _WAITING_PER_SLOT):
            raise self._too_many()
        share.present += 1
        try:
            return await self._run(share.places, deadline_s, function, *arguments)
        finally:
            share.present -= 1
            if not share.present:
                del self._by_caller[caller]

    async def _run(
        self,
        places: anyio.Semaphore | None,
        deadline_s: float | None,
        function: Callable[..., Result],
        *arguments: object,
    ) -> Result:
        left_s = math.inf if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        async with AsyncExitStack() as held:
            try:
                with anyio.fail_after(left_s):
                    if places is not None:
                        await held.enter_async_context(places)
                    await held.enter_async_context(self._limiter)
            except TimeoutError:
                raise TooLate(
                    f"all places for {self._what} were taken until the deadline", code="TOO_LATE"
                ) from None
            # As many threads as places, so that no call waits here, where no deadline is looked at.
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)

    def _too_many(self) -> TooMany:
        return TooMany(f"too many {self._what} at a time", code="TOO_MANY_AT_ONCE", hint="wait a second")


@dataclass(slots=True)
class _Share:
    """What one caller has of the slots."""

    places: anyio.Semaphore
    present: int = 0


class Budget:
    """Bytes that all requests under way may take together. Lives on the event loop.

    Where a share is given, no caller has more of them than that.
    """

    def __init__(self, most_bytes: int, what: str, *, share: int | None = None, code: str) -> None:
        self._left = most_bytes
        self._most = most_bytes
        self._share = most_bytes if share is None else share
        self._by_caller: Counter[str] = Counter()
        self._what = what
        self._code = code

    @contextmanager
    def room(self, caller: str = "") -> Iterator["Room"]:
        """Room for one request, given back when the block ends."""
        room = self.open_room(caller)
        try:
            yield room
        finally:
            room.close()

    def open_room(self, caller: str) -> "Room":
        """As `room`, but the caller closes it later."""
        return Room(self, caller)

    def take(self, caller: str, size: int) -> None:
        if size > self._left or self._by_caller[caller] + size > self._share:
            raise TooMany(
                f"{self._what} take all the room that they may have",
                limit=self._most,
                code=self._code,
                hint="wait until others are done",
            )
        self._left -= size
        self._by_caller[caller] += size

    def give_back(self, caller: str, size: int) -> None:
        self._left += size
        self._by_caller[caller] -= size
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class Room:
    """Of one request."""

    def __init__(self, budget: Budget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._taken = 0

    def take(self, size: int) -> None:
        """`TooMany` if there is not so much left."""
        self._budget.take(self._caller, size)
        self._taken += size

    def close(self) -> None:
        self._budget.give_back(self._caller, self._taken)
        self._taken = 0


def check_declared_size(declared: str | None, most_bytes: int) -> None:
    """Refuse a body by the size it announces, before any of it is read."""
    if declared is not None and declared.isdigit() and int(declared) > most_bytes:
        raise too_large(most_bytes)


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge("the body is too large", limit_bytes=most_bytes, code="BODY_TOO_LARGE")


def check_depth(body: bytes, most: int) -> None:
    """Refuse JSON that nests deeper than `most`, without decoding it.

    It is looked through piece by piece, in arrays: millions of small objects
    would take gigabytes, and everybody else would wait while they are made.
    """
    depth, in_text, is_escaped = 0, False, False
    for at in range(0, len(body), _DEPTH_PIECE):
        piece = np.frombuffer(body, dtype=np.uint8, count=min(_DEPTH_PIECE, len(body) - at), offset=at)
        escaped = _after_backslashes(piece, first=is_escaped)
        is_escaped = bool(piece[-1] == _BACKSLASH and not escaped[-1])
        is_quote = (piece == _QUOTE) & ~escaped
        outside = (np.cumsum(is_quote, dtype=np.int32) + in_text) & 1 == 0
        in_text = not outside[-1]
        depths = np.cumsum(np.where(outside & ~escaped, _STEPS[piece], np.int8(0)), dtype=np.int32)
        if depth + int(depths.max()) > most:
            raise InvalidRequest("the JSON nests too deeply", limit=most, code="JSON_TOO_DEEP")
        depth += int(depths[-1])


def _after_backslashes(
    piece: "np.ndarray[Any, np.dtype[np.uint8]]", *, first: bool
) -> "np.ndarray[Any, Any]":
    """Which bytes come after an odd number of backslashes; `first`: whether the first of them does."""
    is_backslash = piece == _BACKSLASH
    escaped = np.zeros(piece.size, dtype=np.bool_)
    escaped[0] = first
    if not first and not is_backslash.any():
        return escaped
    at = np.arange(piece.size, dtype=np.int32)
    # An escaped backslash escapes nothing: the row of those that may begins after it.
    last_other = np.maximum.accumulate(np.where(is_backslash & ~escaped, np.int32(-1), at))
    escaped[1:] = ((at - last_other) & 1 == 1)[:-1]
    return escaped


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much the service does at a time, and how much of that one user may have."""

    rates: RateLimit
    calls: Slots
    queries: Slots
    downloads: Budget
    """Files that are being sent, by their number."""
    staged: Budget
    """Uploads under way, on disk."""
    bodies: Budget
    """Other bodies under way, in memory."""
    answers: Budget
    """Answers that clients have not taken yet, in memory."""


def open_bounds(settings: ServerSettings, clock: Clock) -> Bounds:
    limits = settings.limits
    return Bounds(
        rates=RateLimit(limits.requests_per_second, clock),
        calls=Slots(_CALLS_AT_ONCE, "requests", share=share_of_user(settings, _CALLS_AT_ONCE)),
        queries=Slots(limits.concurrent_queries, "queries", share=_share_of_queries(settings)),
        downloads=Budget(
            _DOWNLOADS_AT_ONCE,
            "downloads",
            share=share_of_user(settings, _DOWNLOADS_AT_ONCE),
            code="TOO_MANY_AT_ONCE",
        ),
        staged=Budget(limits.staged_bytes, "uploads under way", code="NO_ROOM_FOR_UPLOADS"),
        bodies=_memory_budget(settings, limits.bodies_bytes, limits.largest_body_bytes, "bodies under way"),
        answers=_memory_budget(
            settings,
            _ANSWERS * max(limits.answer_bytes, _LISTING_BYTES),
            limits.answer_bytes,
            "answers that were not taken yet",
        ),
    )


def share_of_user(settings: ServerSettings, count: int) -> int | None:
    """How many of these one user may have at a time; no bound where everybody is the same user."""
    return max(1, count // _SHARES) if settings.has_auth else None


def _share_of_queries(settings: ServerSettings) -> int | None:
    limits = settings.limits
    if limits.queries_per_user is not None:
        return limits.queries_per_user
    return max(1, limits.concurrent_queries - 1) if settings.has_auth else None


def _memory_budget(settings: ServerSettings, most_bytes: int, least_share: int, what: str) -> Budget:
    """Room in memory, of which one user may have half, where there are several."""
    share = max(most_bytes // 2, least_share) if settings.has_auth else None
    return Budget(most_bytes, what, share=share, code="NO_ROOM")
