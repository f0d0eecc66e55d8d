"""The zone of a table's instants: UTC, or LOCAL, the zone of the processes that write it.

Hudi takes LOCAL as the zone of each JVM and remembers it nowhere. Here the
first writer records the zone of its process, and every process of ours goes
by that record, wherever it runs. Hudi's own instants tell whether it is right.

It is recorded twice: in a file, which decides between two first writers, and in
the ledger, with the first entry after it. What the ledger says counts from then
on. A file that is missing or says something else is written anew by the next
operation that writes, unless Hudi's instants contradict the ledger: then the
file, or the zone of the process if it was deleted, is how people correct it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from holdfast.clock import SystemClock
from holdfast.config.choices import TimelineZone
from holdfast.config.table import TableSettings
from holdfast.errors import Refused, TableDamaged
from holdfast.format.properties import find_saved_at
from holdfast.model.instant import Action, InstantTime, State, moment_of, next_time, time_at
from holdfast.model.names import META_FOLDER, PROPERTIES_FILE, ZONE_FILE, parse_instant_file
from holdfast.storage.store import Store, StoredFile, read_or_none
from holdfast.timeline.ledger import Ledger, LedgerState

if TYPE_CHECKING:
    from holdfast.table.opened import OpenTable  # Opening a table asks for its archive, and so for its zone.

log = logging.getLogger(__name__)

_STEP_MS = 15 * 60_000
"""The offsets of zones are multiples of it."""
_EARLY_MS, _LATE_MS = 5_000, 60_000
"""How long before and after its own time the file of a new instant may appear, by storage's clock."""
_WEST_MS, _EAST_MS = -12 * 3_600_000, 14 * 3_600_000
_WITNESSES = 5
_COPYING_MS = 3_600_000
"""How long it may take to copy a table's metadata."""
_AHEAD_MS = 10 * 60_000
"""Clocks that differ by less are just not set well."""
_ZONE_APART_MS = _EAST_MS - _WEST_MS


def timeline_zone(table: OpenTable) -> dt.tzinfo:
    """The zone of the table's instants. `Refused` if it cannot be known, or Hudi's instants contradict it."""
    if table.settings.timeline_zone is TimelineZone.UTC:
        return dt.UTC
    state = table.ledger.read()
    witness = _witness(table.store, state)
    decided = _zone_of_ledger(state)
    if decided is not None and not _contradicts(witness, decided):
        wrong = wrong_record(table, state)
        if wrong:
            log.warning(
                "zone.wrong_record", extra={"table": table.store.uri(""), "file": ZONE_FILE, "detail": wrong}
            )
        return decided
    zone = read_recorded_zone(table.store) or _process_zone(table)
    _check_witness(witness, zone)
    return zone


def next_instant(table: OpenTable, newest: InstantTime | None) -> InstantTime:
    """The time for a new instant of the table, later than the newest. The first one settles the zone."""
    zone = timeline_zone(table)
    if isinstance(zone, ZoneInfo):
        zone = _record(table, zone)
    return next_time(table.clock.now_ms(), newest, zone)


def _record(table: OpenTable, zone: ZoneInfo) -> ZoneInfo:
    """Put the zone where others find it, in the file and in the next entry of the ledger; the one that holds.

    Another writer may have been faster, as long as the ledger does not tell.
    """
    decided = table.ledger.known.zone
    if decided == zone.key:
        _write_anew(table, zone.key)
        return zone
    table.store.create(ZONE_FILE, _line(zone.key))
    zone = read_recorded_zone(table.store) or zone
    table.ledger.note_zone(zone.key, over=decided)
    return zone


def restore_record(table: OpenTable, state: LedgerState) -> None:
    """Write the file anew if it is not what the ledger says, and nothing speaks against the ledger."""
    if table.settings.timeline_zone is TimelineZone.UTC or not state.zone:
        return
    if _content_of(table.store) == _line(state.zone):
        return
    decided = _zone_of_ledger(state)
    if decided is not None and not _contradicts(_witness(table.store, state), decided):
        _write_anew(table, decided.key)


def wrong_record(table: OpenTable, state: LedgerState) -> str:
    """What is wrong with the file, in words; nothing if it says what the ledger does.

    `TableDamaged` if the ledger says nothing, and the file cannot be read.
    """
    if table.settings.timeline_zone is TimelineZone.UTC:
        return ""
    if not state.zone:
        read_recorded_zone(table.store)
        return ""
    content = _content_of(table.store)
    if content == _line(state.zone):
        return ""
    says = "is missing" if content is None else f"says {content.decode(errors='replace')[:80]!r}"
    return f"the record of the table's time zone {says}, and the ledger says {state.zone}"


def _write_anew(table: OpenTable, name: str) -> None:
    if _content_of(table.store) != _line(name):
        table.store.put(ZONE_FILE, _line(name))
        log.info("zone.restored", extra={"table": table.store.uri(""), "zone": name})


def _line(name: str) -> bytes:
    return f"{name}\n".encode()


def _content_of(store: Store) -> bytes | None:
    return read_or_none(store, ZONE_FILE)


def _zone_of_ledger(state: LedgerState) -> ZoneInfo | None:
    """The zone that the ledger says; None if it says none."""
    if not state.zone:
        return None
    try:
        return ZoneInfo(state.zone)
    except (ValueError, OSError, KeyError) as error:
        raise Refused(
            "the zone of the table's instants is not known on this machine",
            zone=state.zone,
            hint="install the time zones of this system, or the package tzdata",
        ) from error


def refuse_if_ahead(table: OpenTable, newest: InstantTime | None) -> None:
    """`Refused` if instants are hours ahead: Hudi's next one would lie before them, and before this write.

    What is further ahead than zones are apart is a clock that was wrong; that passes for no zone.
    """
    if newest is None or table.settings.timeline_zone is TimelineZone.UTC:
        return
    zone = timeline_zone(table)
    now_ms = table.clock.now_ms()
    ahead_ms = int(moment_of(newest, zone).timestamp() * 1000) - now_ms
    if _AHEAD_MS < ahead_ms <= _ZONE_APART_MS:
        raise Refused(
            "the newest instant is ahead of the table's clock: it was made in another time zone",
            instant=newest,
            now=time_at(now_ms, zone),
            zone=zone,
            hint="what Hudi writes next would be hidden behind it, and behind this write;"
            f" write again when the table's clock has passed {newest}",
        )


def archive_zone(store: Store, settings: TableSettings) -> dt.tzinfo:
    """The zone of the moments in archives, which are there to be shown: UTC, where none is recorded.

    The file is asked first, for the ledger costs more calls.
    """
    if settings.timeline_zone is TimelineZone.UTC:
        return dt.UTC
    try:
        zone = read_recorded_zone(store)
    except TableDamaged:
        zone = None
    return zone or _zone_of_ledger(Ledger(store, SystemClock()).read()) or dt.UTC


def read_recorded_zone(store: Store) -> ZoneInfo | None:
    """The zone that the file names; None if there is no file, `TableDamaged` if it cannot be read."""
    content = _content_of(store)
    if content is None:
        return None
    name, end, rest = content.decode(errors="replace").partition("\n")
    try:
        if not end or rest:
            raise ValueError("it is not one line")
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise TableDamaged(
            "the record of the table's time zone cannot be read",
            file=ZONE_FILE,
            cause=error,
            hint="write the zone of the table's writers into it, on one line, such as Europe/Berlin",
        ) from error


def _process_zone(table: OpenTable) -> ZoneInfo:
    name = table.clock.zone_name()
    if name is None:
        raise Refused(
            "the table's instants are in local time, and the time zone of this process has no name",
            table=table.settings.name,
            hint="set TZ to the zone of the table's writers, such as Europe/Berlin",
        )
    return ZoneInfo(name)


@dataclass(frozen=True, slots=True)
class _Witness:
    """An instant of another program, when storage says that it began, and how far the two are apart."""

    instant: InstantTime
    created: dt.datetime
    offset: dt.timedelta


def _witness(store: Store, state: LedgerState) -> _Witness | None:
    """The newest instant of another program, where storage tells when it began.

    A new instant's file appears at once. So its time is by a whole offset away
    from the clock of storage. The files of a copy say when it was made instead:
    some of them fit an offset by chance, and none is believed.
    """
    found: list[_Witness] = []
    for time, created_ms in _foreign_writes(store, state)[:_WITNESSES]:
        apart_ms = int(moment_of(time, dt.UTC).timestamp() * 1000) - created_ms
        late_ms = -(apart_ms - _EARLY_MS) % _STEP_MS
        offset_ms = apart_ms - _EARLY_MS + late_ms
        if late_ms > _EARLY_MS + _LATE_MS or not _WEST_MS <= offset_ms <= _EAST_MS:
            return None
        created = dt.datetime.fromtimestamp(created_ms / 1000, dt.UTC)
        found.append(_Witness(time, created, dt.timedelta(milliseconds=offset_ms)))
    return found[0] if found else None


def _contradicts(witness: _Witness | None, zone: ZoneInfo) -> bool:
    return witness is not None and witness.created.astimezone(zone).utcoffset() != witness.offset


def _check_witness(witness: _Witness | None, zone: ZoneInfo) -> None:
    if witness is not None and _contradicts(witness, zone):
        raise Refused(
            "another program writes the table's instants in another time zone",
            instant=witness.instant,
            written_at=witness.created.isoformat(timespec="seconds"),
            zone=zone,
            offset=dt.timezone(witness.offset),
            hint="set TZ to the zone of Hudi's writers"
            f" (and delete {ZONE_FILE}, if it names another); copy tables with their modification times",
        )


def _foreign_writes(store: Store, state: LedgerState) -> list[tuple[InstantTime, int]]:
    """Writes that the ledger does not know, and when each was requested; the newest first."""
    known = state.begun.keys() | state.committed.keys() | state.aborted.keys()
    files = store.folder(META_FOLDER).files
    found: list[tuple[InstantTime, int]] = []
    for file in files:
        parsed = parse_instant_file(file.path.rpartition("/")[2])
        if parsed is None or parsed[2] is not State.REQUESTED or parsed[0] in known:
            continue
        # Other actions are planned between their time and their file.
        if parsed[1] in (Action.COMMIT, Action.DELTACOMMIT):
            found.append((parsed[0], file.modified_ms))
    end_of_copying_ms = _end_of_copying(store, files) if found else 0
    return sorted(
        (each for each in found if each[1] > end_of_copying_ms), key=lambda each: each[1], reverse=True
    )


def _end_of_copying(store: Store, files: Iterable[StoredFile]) -> int:
    """When a copy that kept no times of files was made, at the latest; 0 if these are the files' own times.

    The properties say themselves when they were saved.
    """
    modified_ms = next((file.modified_ms for file in files if file.path == PROPERTIES_FILE), 0)
    saved_at = find_saved_at(read_or_none(store, PROPERTIES_FILE) or b"")
    if saved_at is None or -_EARLY_MS <= modified_ms - int(saved_at.timestamp() * 1000) <= _LATE_MS:
        return 0
    return modified_ms + _COPYING_MS
