"""The exports of a table on request: which there are and how far they are, switching them on and off."""

import logging
from collections.abc import Sequence

import pyarrow.compute as pc

from holdfast.config.choices import ExportFormat, TableType
from holdfast.config.table import EXPORT_FORMATS, parse_export_formats
from holdfast.errors import TableDamaged
from holdfast.exports.advance import (
    FORMATS,
    ExportState,
    has_moved,
    instants_to_show,
    standing,
    step_at,
)
from holdfast.exports.delta import delete_delta
from holdfast.exports.delta_types import schema_string
from holdfast.exports.follow import follow
from holdfast.exports.iceberg import delete_iceberg, metadata_path
from holdfast.exports.step import NO_INSTANT
from holdfast.format.field_ids import extend_field_ids
from holdfast.format.iceberg import schema_fields
from holdfast.model.instant import InstantTime
from holdfast.model.names import ICEBERG_FOLDER, parse_log_file
from holdfast.model.reports import Export
from holdfast.read.snapshot import table_schema
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import change_settings, read_current_settings
from holdfast.table.stable_read import read_stable
from holdfast.table.view import load_view
from holdfast.timeline.timeline import Timeline, load_timeline

_LOOKS = 20
log = logging.getLogger(__name__)


def exports(table: OpenTable) -> list[Export]:
    """The exports that are switched on, how far each is, and where other programs find it."""
    return [_describe(table, form) for form in read_current_settings(table).export_formats]


def export(table: OpenTable) -> list[Export]:
    """Bring the exports to what the timeline shows; where they are then."""
    follow(table)
    return exports(table)


def set_exports(table: OpenTable, formats: Sequence[str]) -> list[Export]:
    """Keep the table in these other formats from now on, and in no others.

    What was exported to a format that is not among them is deleted. `InvalidOption`
    if there is no such format, `UnsupportedTable` if it lacks a type of the table,
    `Refused` if another program's files are where the export would be.
    """
    wanted = parse_export_formats(formats)
    table.settings.check_changeable()
    _check(table, wanted)
    before = read_current_settings(table).export_formats
    dropped = [form for form in before if form not in wanted]
    for form in dropped:
        # While it is still switched on: what is half deleted by a process that dies is made anew.
        _delete(table.store, form)
    change_settings(table.store, {EXPORT_FORMATS: ",".join(wanted)}, now_ms=table.clock.now_ms())
    for form in dropped:
        _delete(table.store, form)
    log.info("exports.set", extra={"table": table.store.uri(""), "formats": list(wanted)})
    return export(table)


def _check(table: OpenTable, formats: Sequence[ExportFormat]) -> None:
    schema = table_schema(table, load_timeline(table.store))
    for form in formats:
        FORMATS[form].read(table.store)
        if schema is None:
            continue
        match form:
            case ExportFormat.DELTA:
                schema_string(schema)
            case ExportFormat.ICEBERG:
                schema_fields(schema, extend_field_ids({}, schema))


def _delete(store: Store, form: ExportFormat) -> None:
    match form:
        case ExportFormat.DELTA:
            delete_delta(store)
        case ExportFormat.ICEBERG:
            delete_iceberg(store)


def _describe(table: OpenTable, form: ExportFormat) -> Export:
    """Where an export is; looked at again if another process moves it meanwhile."""
    for _ in range(_LOOKS):
        state = FORMATS[form].read(table.store)
        try:
            return _describe_at(table, form, state)
        except TableDamaged:
            if not has_moved(table.store, FORMATS[form], state):
                raise
    return _describe_at(table, form, FORMATS[form].read(table.store))


def _describe_at(table: OpenTable, form: ExportFormat, state: ExportState | None) -> Export:
    at = None if state is None else state.instant
    return Export(
        format=str(form),
        instant=None if at == NO_INSTANT else at,
        lag=read_stable(table.store, lambda timeline: _lag(table, timeline, state)),
        where=_where(table, form, state),
        complete_until=_complete_until(table, at),
    )


def _where(table: OpenTable, form: ExportFormat, state: ExportState | None) -> str:
    match form:
        case ExportFormat.DELTA:
            return table.store.uri("").rstrip("/")
        case ExportFormat.ICEBERG:
            return table.store.uri(ICEBERG_FOLDER if state is None else metadata_path(state.version))


def _lag(table: OpenTable, shown: Timeline, state: ExportState | None) -> int:
    """How many commits an export does not show; one if it shows what is not there any more."""
    ledger = table.ledger.read()
    timeline = standing(shown, ledger)
    if state is None:
        return len(timeline.completed_commits)
    instants = instants_to_show(timeline, state.instant)
    view = load_view(table.store, timeline)
    step = step_at(table, timeline, view, instants[-1], state.slot, ledger=ledger, state=state)
    return len(instants) if step is None or state.lacks(step) else 0


def _complete_until(table: OpenTable, at: InstantTime | None) -> InstantTime | None:
    """The newest commit of which the export has all rows: those in log files are in no export."""
    if at is None or at == NO_INSTANT:
        return None
    if table.settings.table_type is TableType.COPY_ON_WRITE:
        return at

    def find(timeline: Timeline) -> InstantTime | None:
        view = load_view(table.store, timeline)
        slices = view.newest(at)
        logs = pc.list_flatten(slices["logs"]).to_pylist()
        names = [parse_log_file(path.rpartition("/")[2]) for path in logs]
        # Of a log file that another program made, the slice tells when it is younger than.
        writers = [name.written_by or name.base_instant for name in names if name is not None]
        first = min(writers, default=None)
        commits = [commit.time for commit in timeline.completed_commits if commit.time <= at]
        before = [time for time in commits if first is None or time < first]
        return max(before, default=None)

    return read_stable(table.store, find)
