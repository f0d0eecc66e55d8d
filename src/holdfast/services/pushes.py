"""Records of pushes: a lake table knows by itself what is served from it.

    .hoodie/.holdfast/pushes/<instant>_<lineage entry>.json

A record is there before queries can see its push. It goes when the push was
taken back, or when its lineage entry is gone and a later push is served.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from holdfast.errors import TableDamaged
from holdfast.model.instant import InstantTime, end_of
from holdfast.model.names import PUSHES_FOLDER
from holdfast.model.pushes import Fate, Push, newest_of_each_place
from holdfast.model.reports import Finding, VerifyReport
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import timeline_and_ledger

_decoder = msgspec.json.Decoder(Push)

Ask = Callable[[Sequence[Push]], Mapping[str, Fate]]
"""Asks the services what became of pushes; the answer is by lineage entry."""


def ask_nobody(_pushes: Sequence[Push]) -> Mapping[str, Fate]:
    """What is recorded is all that is known."""
    return {}


@dataclass(frozen=True, slots=True)
class PushRecords:
    pushes: tuple[Push, ...]
    """Oldest first; those that may not be published yet come last."""
    torn: tuple[str, ...]
    """Records that cannot be read."""


def push_record(push: Push) -> str:
    """The path of a push's record."""
    return f"{PUSHES_FOLDER}/{push.instant}_{quote(push.entry_id, safe='')}.json"


def write_push(table: OpenTable, push: Push) -> None:
    """Record a push, or what is known of it by now."""
    table.store.put(push_record(push), msgspec.json.encode(push))


def forget_pushes(table: OpenTable, pushes: Iterable[Push]) -> None:
    """Remove records; one that would not go is read again later, and does no harm."""
    table.store.delete_all(map(push_record, pushes))


def push_records(table: OpenTable) -> PushRecords:
    """Everything that is recorded."""
    found: list[Push] = []
    torn: list[str] = []
    paths = [file.path for file in table.store.folder(PUSHES_FOLDER).files]
    for path, content in zip(paths, table.store.read_all(paths), strict=True):
        try:
            found += [] if content is None else [_decoder.decode(content)]
        except (msgspec.ValidationError, msgspec.DecodeError):
            torn.append(path)
    published = sorted((one for one in found if one.published_at), key=lambda one: str(one.published_at))
    return PushRecords((*published, *(one for one in found if not one.published_at)), tuple(torn))


def pushes(table: OpenTable) -> list[Push]:
    """The pushes of a table, oldest first. `TableDamaged` if a record cannot be read."""
    records = push_records(table)
    if records.torn:
        raise TableDamaged(
            "the record of a push cannot be read",
            file=records.torn[0],
            hint="holdfast repair PATH moves it out of the way",
        )
    return list(records.pushes)


def find_undone_commits(table: OpenTable, times: Iterable[InstantTime]) -> frozenset[InstantTime]:
    """Those of the commits that the table has no more. An archived commit is still one."""
    timeline, _ = timeline_and_ledger(table)
    state = table.ledger.read_with_older_aborts()
    shown = {commit.time for commit in timeline.completed_commits} | state.committed.keys()
    first = timeline.first_commit_time

    def is_kept(time: InstantTime) -> bool:
        is_older = first is not None and end_of(time) < end_of(first)
        return not state.is_taken_back(time) and (time in shown or is_older or state.is_archived(time))

    return frozenset(time for time in times if not is_kept(time))


def find_served(pushes: Iterable[Push], fates: Mapping[str, Fate]) -> list[Push]:
    """The push that queries see at each place; where no service answers, the newest that is recorded."""
    told = [push for push in pushes if fates.get(push.entry_id, Fate.UNKNOWN) is not Fate.UNKNOWN]
    places = {push.place for push in told}
    seen = [push for push in told if fates[push.entry_id] is Fate.SERVED]
    return newest_of_each_place([*seen, *(push for push in pushes if push.place not in places)])


def without_settled(report: VerifyReport, pushes: Iterable[Push], fates: Mapping[str, Fate]) -> VerifyReport:
    """The report without pushes of which queries see nothing any more."""
    by_record = {push_record(push): fates.get(push.entry_id, Fate.UNKNOWN) for push in pushes}

    def is_left(finding: Finding) -> bool:
        return by_record.get(finding.path, Fate.UNKNOWN) in (Fate.SERVED, Fate.UNKNOWN)

    return replace(report, findings=tuple(filter(is_left, report.findings)))


def push_warnings(
    table: OpenTable,
    records: PushRecords,
    gone: Collection[InstantTime],
    fates: Mapping[str, Fate] = MappingProxyType({}),
) -> list[str]:
    """What is served although its commit is gone, as far as is known, and what to do."""
    served = [push for push in find_served(records.pushes, fates) if push.instant in gone]
    return [
        *(f"{path} cannot be read: holdfast repair {_uri(table)} moves it away" for path in records.torn),
        *(
            f"{push.table} at {push.controller} shows rows that were taken back"
            f"{_doubt(push, fates)}: {revert_command(table, push)}"
            for push in served
        ),
    ]


def _doubt(push: Push, fates: Mapping[str, Fate]) -> str:
    return "" if fates.get(push.entry_id) is Fate.SERVED else ", unless that was reverted"


def revert_command(table: OpenTable, push: Push) -> str:
    """The command that makes queries see again what was there before a push from commits that are gone."""
    name = push.table.removesuffix("_OFFLINE")
    return f"holdfast push revert {name} --from-lake {_uri(table)} --controller {push.controller}"


def _uri(table: OpenTable) -> str:
    return shlex.quote(table.location.uri)
