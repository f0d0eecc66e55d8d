"""Refused calls: who tried to change what.

A refused call changes nothing of a table, its audit included, so these are
kept apart: one record for each controller, written now and then and never
larger than its limits, whatever is sent. Equal calls share a line with a
count. One caller pushes out only its own lines, and unknown callers push out
no lines of known ones; but a caller that comes from more addresses than are
kept pushes out all the other addresses.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv6Address
from typing import Self

import msgspec

from holdfast.clock import Clock
from holdfast.errors import LineageChanged
from holdfast.push.metastore.port import Create, Metastore, Remove, Replace, Versioned

log = logging.getLogger(__name__)

_CALLERS = 50
"""Of each kind: known by name, and known by address only, or by network where an address costs nothing."""
_LINES = 10
"""For each caller."""
_TEXT = 100
"""Characters that are kept of what a caller can choose."""

REFUSED_CALLS = "/PROPERTYSTORE/REFUSED_CALLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """Calls that differ in nothing but the time."""

    actor: str
    """Empty: the caller was not logged in."""
    address: str
    operation: str
    table: str
    """As it was named; there need not be such a table."""
    code: str
    count: int
    first_at_ms: int
    last_at_ms: int
    request_id: str
    """Of the last."""


_Callers = OrderedDict[str, OrderedDict[tuple[str, ...], RefusedCall]]


class RefusedCalls:
    """Those of one controller. Every method may be called from any thread."""

    def __init__(self, metastore: Metastore, clock: Clock, *, record: str) -> None:
        self._metastore = metastore
        self._clock = clock
        self._record = record
        self._path = f"{REFUSED_CALLS}/{record}"
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._has_changed = False
        self._known: _Callers = OrderedDict()
        self._unknown: _Callers = OrderedDict()

    @classmethod
    def open(cls, metastore: Metastore, clock: Clock, *, record: str) -> Self:
        """With what was written under this name of a record before."""
        opened = cls(metastore, clock, record=record)
        found = metastore.read(opened._path)
        before = () if found is None else _readable(record, found)
        for call in sorted(before, key=_last):
            opened._put(call)
        return opened

    def note(
        self, *, actor: str, address: str, operation: str, table: str, code: str, request_id: str
    ) -> None:
        """Remember a call, in memory; `write` makes it last."""
        now_ms = self._clock.now_ms()
        call = RefusedCall(
            actor=actor[:_TEXT],
            address=address[:_TEXT],
            operation=operation,
            table=table[:_TEXT],
            code=code,
            count=1,
            first_at_ms=now_ms,
            last_at_ms=now_ms,
            request_id=request_id,
        )
        with self._lock:
            self._put(call)
            self._has_changed = True

    def write(self) -> None:
        """Write what was noted since the last time; nothing if that is nothing."""
        with self._writing:
            with self._lock:
                if not self._has_changed:
                    return
                self._has_changed = False
                content = msgspec.json.encode(self._lines())
            try:
                self._store(content)
            except BaseException:
                with self._lock:
                    self._has_changed = True
                raise

    def newest(self, limit: int) -> tuple[RefusedCall, ...]:
        """Of all controllers, the newest first; of this one also what is not written yet."""
        found = self._metastore.read_children(REFUSED_CALLS)
        others = [
            call for name, record in found.items() if name != self._record for call in _readable(name, record)
        ]
        with self._lock:
            calls = [*others, *self._lines()]
        return tuple(sorted(calls, key=_last, reverse=True)[:limit])

    def _store(self, content: bytes) -> None:
        found = self._metastore.read(self._path)
        change = Create(self._path, content) if found is None else Replace(self._path, content, found.version)
        self._metastore.write([change])

    def _put(self, call: RefusedCall) -> None:
        callers = self._known if call.actor else self._unknown
        caller = call.actor or _network(call.address)
        lines = callers.setdefault(caller, OrderedDict())
        callers.move_to_end(caller)
        key = (call.address, call.operation, call.table, call.code)
        before = lines.pop(key, None)
        if before is not None:
            count, first_at_ms = before.count + call.count, before.first_at_ms
            call = replace(call, count=count, first_at_ms=first_at_ms)
        lines[key] = call
        while len(lines) > _LINES:
            lines.popitem(last=False)
        while len(callers) > _CALLERS:
            callers.popitem(last=False)

    def _lines(self) -> list[RefusedCall]:
        every = (*self._known.values(), *self._unknown.values())
        return [call for lines in every for call in lines.values()]


def trim_refused_calls(metastore: Metastore, *, oldest_ms: int) -> int:
    """Remove the records without a call since `oldest_ms`; how many went.

    No controller does it by itself: one that moved writes under another name.
    """
    removed = 0
    for name, record in metastore.read_children(REFUSED_CALLS).items():
        calls = _readable(name, record)
        if not calls or max(map(_last, calls)) >= oldest_ms:
            continue  # One that cannot be read stays, to be looked into.
        with suppress(LineageChanged):  # Its controller has just written.
            metastore.write([Remove(f"{REFUSED_CALLS}/{name}", record.version)])
            removed += 1
    return removed


def _network(address: str) -> str:
    """Of an IPv6 address its first half: a caller chooses the other freely."""
    try:
        found = IPv6Address(address)
    except AddressValueError:
        return address
    return address if found.ipv4_mapped else str(IPv6Address(int(found) >> 64 << 64))


def _last(call: RefusedCall) -> int:
    return call.last_at_ms


def _readable(name: str, record: Versioned) -> Sequence[RefusedCall]:
    """The calls of a record; none if it cannot be read: pushes, and the other records, do without it."""
    try:
        return msgspec.json.decode(record.data, type=list[RefusedCall])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        log.error("refused_calls.unreadable", extra={"record": name, "cause": str(error)})
        return ()
