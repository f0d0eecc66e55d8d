"""The savepoints of a table, as the timeline tells."""

import datetime as dt

from holdfast.errors import InvalidRequest, UnknownInstant
from holdfast.format.malformed import report_damage
from holdfast.format.savepoints import SavepointMetadata, decode_savepoint
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.model.reports import Savepoint
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import Timeline, load_timeline, read_all_completed

LATEST_SAVEPOINT = "latest-savepoint"
"""Names the newest savepoint, where a commit is asked for."""


def savepoints(table: OpenTable) -> list[Savepoint]:
    """All savepoints, oldest first; those that Apache Hudi made are among them."""
    timeline = load_timeline(table.store)
    shown = [i for i in timeline.instants if i.action is Action.SAVEPOINT and i.is_completed]
    contents = {instant.time: content for instant, content in read_all_completed(table.store, shown)}
    contents |= _unshown(table, timeline)
    return [
        savepoint_report(time, read_savepoint_metadata(content, time))
        for time, content in sorted(contents.items())
    ]


def commit_of_savepoint(table: OpenTable, name: str) -> str:
    """The commit whose savepoint has this comment, or of the newest one; any other name stays as it is.

    `InvalidRequest` if several savepoints have the comment.
    """
    if name.strip().isdigit():
        return name
    found = [one for one in savepoints(table) if name in (LATEST_SAVEPOINT, one.comment)]
    if name == LATEST_SAVEPOINT:
        if not found:
            raise UnknownInstant(
                "the table has no savepoint", hint="holdfast savepoints create PATH makes one"
            )
        return found[-1].instant
    if len(found) > 1:
        raise InvalidRequest(
            "several savepoints have this comment",
            comment=name,
            instants=", ".join(one.instant for one in found),
            hint="name one of these instants",
        )
    return found[0].instant if found else name


def _unshown(table: OpenTable, timeline: Timeline) -> dict[InstantTime, bytes]:
    """Savepoints that were decided and whose completed file is not there, yet or any more."""
    decided = table.ledger.read().savepoints if timeline.pending_savepoints else {}
    pending = [instant.time for instant in timeline.pending_savepoints if instant.time in decided]
    return {time: table.ledger.payload(decided[time]) for time in pending}


def read_savepoint_metadata(content: bytes, time: InstantTime) -> SavepointMetadata:
    with report_damage(
        "a savepoint cannot be read", file=instant_file(time, Action.SAVEPOINT, State.COMPLETED)
    ):
        return decode_savepoint(content)


def savepoint_report(time: InstantTime, metadata: SavepointMetadata) -> Savepoint:
    return Savepoint(
        instant=time,
        user=metadata.user,
        comment=metadata.comment,
        created_at=dt.datetime.fromtimestamp(metadata.at_ms / 1000, dt.UTC),
        files=sum(map(len, metadata.files.values())),
        partitions=tuple(sorted(metadata.files)),
    )
