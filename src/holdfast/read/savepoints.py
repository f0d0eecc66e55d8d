"""The savepoints of a table, as the timeline tells."""

import datetime as dt

from holdfast.errors import TableDamaged
from holdfast.format.malformed import Malformed
from holdfast.format.savepoints import SavepointMetadata, decode_savepoint
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.model.reports import Savepoint
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline, read_all_completed


def savepoints(table: OpenTable) -> list[Savepoint]:
    """All savepoints, oldest first; those that Apache Hudi made are among them."""
    shown = [
        i for i in load_timeline(table.store).instants if i.action is Action.SAVEPOINT and i.is_completed
    ]
    return [
        savepoint_report(instant.time, decoded_savepoint(content, instant.time))
        for instant, content in read_all_completed(table.store, shown)
    ]


def decoded_savepoint(content: bytes, time: InstantTime) -> SavepointMetadata:
    try:
        return decode_savepoint(content)
    except Malformed as error:
        file = instant_file(time, Action.SAVEPOINT, State.COMPLETED)
        raise TableDamaged("a savepoint cannot be read", file=file, cause=error) from error


def savepoint_report(time: InstantTime, metadata: SavepointMetadata) -> Savepoint:
    return Savepoint(
        instant=time,
        user=metadata.user,
        comment=metadata.comment,
        created_at=dt.datetime.fromtimestamp(metadata.at_ms / 1000, dt.UTC),
        files=sum(map(len, metadata.files.values())),
        partitions=tuple(sorted(metadata.files)),
    )
