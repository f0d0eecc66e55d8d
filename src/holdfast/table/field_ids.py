"""Which field ids a table has given out, and giving out more.

Every commit of ours carries the numbers of all columns; so the newest one tells
them. A record, which only grows, is where numbers are given out: before the first
file that carries them is written, and so that two writers never give one number
to two columns, nor a later one the number of a column that was taken back. The
record also tells when the newest commit is of another program, or the commits
that knew are archived.
"""

import logging
from collections.abc import Sequence

import pyarrow as pa

from holdfast.format.commits import decode_extra_metadata
from holdfast.format.field_ids import (
    FIELD_IDS,
    FieldIds,
    check_field_ids,
    column_paths,
    decode_field_ids,
    extend_field_ids,
)
from holdfast.format.malformed import Malformed, report_damage
from holdfast.model.instant import Instant
from holdfast.model.names import FIELD_IDS_RECORD, instant_path
from holdfast.storage.store import Store, read_or_none
from holdfast.table.line_record import change_lines, decode_lines
from holdfast.timeline.timeline import Timeline, read_completed

log = logging.getLogger(__name__)


def field_ids(store: Store, timeline: Timeline) -> FieldIds:
    """Column path → field id, of every column that has one; empty if no file of the table carries any yet."""
    commits = timeline.completed_commits
    newest = _ids_of_commit(store, commits[-1]) if commits else None
    if newest is not None:
        return newest
    record = _decode_or_warn(store, read_or_none(store, FIELD_IDS_RECORD))
    if record:
        return record
    # The record is lost, or the table is a copy without it.
    told = (_ids_of_commit(store, commit) for commit in reversed(commits[:-1]))
    return next((ids for ids in told if ids is not None), {})


def assign_field_ids(store: Store, timeline: Timeline, *schemas: pa.Schema | None) -> FieldIds:
    """The field ids of a table, after every column of these schemas, one after the other, was given one."""
    known = field_ids(store, timeline)
    wanted = [schema for schema in schemas if schema is not None]
    paths = {path for schema in wanted for path in column_paths(schema)}
    if paths <= known.keys():
        return known
    assigned: FieldIds = known

    def change(content: bytes | None) -> Sequence[str] | None:
        nonlocal assigned
        recorded = _decode_or_warn(store, content)
        taken = set(known.values())
        given = {path: number for path, number in recorded.items() if number not in taken}
        assigned = {**given, **known}
        for schema in wanted:
            assigned = extend_field_ids(assigned, schema)
        return None if assigned == recorded else _lines(assigned)

    change_lines(store, FIELD_IDS_RECORD, change)
    return assigned


def check_field_id_record(store: Store) -> None:
    """`Malformed` if the record is there and cannot be read."""
    content = read_or_none(store, FIELD_IDS_RECORD)
    if content is not None:
        _decode(content)


def _ids_of_commit(store: Store, commit: Instant) -> FieldIds | None:
    """What a commit says; None if it is one of another program, or of an older version."""
    with report_damage("commit metadata cannot be read", file=instant_path(commit)):
        text = decode_extra_metadata(read_completed(store, commit)).get(FIELD_IDS)
        return None if not text else decode_field_ids(text)


def _lines(ids: FieldIds) -> Sequence[str]:
    return [f"{number} {path}" for path, number in sorted(ids.items(), key=lambda entry: entry[1])]


def _decode(content: bytes) -> FieldIds:
    entries = [line.partition(" ") for line in decode_lines(content)]
    try:
        ids = {path: int(number) for number, _, path in entries}
    except ValueError as error:
        raise Malformed(f"a line has no number: {error}") from error
    check_field_ids(ids)
    return ids


def _decode_or_warn(store: Store, content: bytes | None) -> FieldIds:
    try:
        return {} if content is None else _decode(content)
    except Malformed as error:
        log.warning(
            "field_ids.unreadable",
            extra={"table": store.uri(""), "file": FIELD_IDS_RECORD, "cause": str(error)},
        )
        return {}
