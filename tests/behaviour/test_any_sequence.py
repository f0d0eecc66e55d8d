"""After any sequence of writes hudi-rs and Holdfast read exactly the rows that a dict model holds.

For each index and key generator, with both ways to merge, for tables of both
types, Hypothesis draws sequences of writes: batches with duplicates, nulls and ties, changes of the
schema, writes that die or fail at some storage step; among them commits are undone, the table is
restored, cleaned and, where it has log files, compacted, at once or by a plan that waits. After each
commit the snapshot and the counts are checked; at the end the table as of each commit that a clean
left, and the changes of ranges of commits.
"""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.faults import Crash, CrashingStore, FailingStore
from harness.hudi_reader import hudi_changes, hudi_schema, hudi_snapshot
from harness.table_model import FLAG, GENERATORS, INDEXES, Outcome, Records, Row, TableModel
from harness.world import SimulatedClock, SimulatedHost
from holdfast.config.choices import TableType
from holdfast.config.table import new_table_settings
from holdfast.errors import OutcomeUnknown, StorageUnavailable
from holdfast.format.commits import decode_commit
from holdfast.lake import Table
from holdfast.model.instant import State
from holdfast.model.names import instant_file
from holdfast.model.reports import Commit
from holdfast.storage.disk import Disk
from holdfast.storage.local import LocalStore
from holdfast.storage.store import Store, StoreLocation
from holdfast.table.opened import create_new, open_existing

EXAMPLES = int(os.environ.get("HOLDFAST_SEQUENCES", "3"))
"""Sequences per index, key generator and payload; one of them is always the shortest."""
STEPS = 8
COMMITS = ("commit", "deltacommit", "replacecommit")
BEFORE_ALL = "00000000000000000"

PAYLOADS = {
    "event time": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "latest write": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}
IDS = ("a", "ü,:", "𝄞", "07", "x:1,n:2", "\uffee")
VALUES = (0, -1, 7, 2**31 - 1)
BEYOND = {pa.int32(): 0, pa.int64(): 2**40, pa.float64(): 2**40 + 0.25}
"""What is added to a value so that it needs its type."""
FIRST_COLUMNS = {
    "id": pa.string(),
    "n": pa.int32(),
    "city": pa.string(),
    "zone": pa.int32(),
    "at": pa.int64(),
    "ts": pa.int64(),
    "v": pa.int32(),
    "place": pa.struct({"x": pa.int32()}),
}
WIDER = {pa.int32(): pa.int64(), pa.int64(): pa.float64(), pa.float64(): pa.float64()}


@dataclass(frozen=True)
class Draw:
    """One row before the table's columns are known."""

    key: int
    place: int
    ordering: int | None
    value: int
    is_deleted: bool | None


@dataclass(frozen=True)
class Dress:
    """What a batch looks like beside its values."""

    is_reversed: bool = False
    is_narrow: bool = False
    is_sparse: bool = False
    opens_groups: bool = False
    """Whether new rows go to new file groups, however small the others are."""
    has_duplicates: bool = False
    """Whether an insert is left to combine the rows of a key."""

    @property
    def options(self) -> dict[str, str]:
        options = {}
        if self.is_sparse:
            options["hoodie.write.set.null.for.missing.columns"] = "true"
        if self.opens_groups:
            options["hoodie.parquet.small.file.limit"] = "0"
        if self.has_duplicates:
            options["hoodie.combine.before.insert"] = "true"
        return options


DRAWS = st.builds(
    Draw,
    key=st.integers(0, len(IDS) - 1),
    place=st.sampled_from((0, 0, 1, 2)),
    ordering=st.sampled_from((1, 2, 3, None)),
    value=st.integers(0, len(VALUES) - 1),
    is_deleted=st.sampled_from((False, False, None, True)),
)
BATCHES = st.lists(DRAWS, max_size=8)
FIRST_BATCHES = st.lists(DRAWS, min_size=5, max_size=12)
DRESSES = st.builds(Dress, *[st.booleans()] * 5)


@dataclass(frozen=True)
class Fault:
    """Before the n-th change of storage or, if `late`, when it is made."""

    step: int
    late: bool
    kind: str

    def store(self, inner: Store) -> Store:
        if self.kind == "dies":
            return CrashingStore(inner, self.step, after=self.late)
        return FailingStore(inner, self.step, applied=self.late, persistent=self.kind == "always")


LOGS = (
    {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"},
    {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "2"},
    {"holdfast.mor.max.log.ratio": "1000", "hoodie.logfile.data.block.format": "avro"},
    {},
)
"""What writes of a merge-on-read table do: always append, as long as that can say it; or now and then."""

FAULTS = st.builds(
    Fault,
    step=st.integers(1, 16),
    late=st.booleans(),
    kind=st.sampled_from(("dies", "fails once", "always")),
)


@dataclass
class Tally:
    """What was checked; printed as one line."""

    sequences: int = 0
    commits: int = 0
    compactions: int = 0
    taken_back: int = 0
    cleans: int = 0
    failed: int = 0
    logs: int = 0
    snapshots: int = 0
    ranges: int = 0
    unread: int = 0

    def __str__(self) -> str:
        return (
            f"any sequence: {self.sequences} sequences, {self.commits} commits with {self.logs} log files,"
            f" {self.compactions} compactions, {self.taken_back} ways back, {self.cleans} cleans,"
            f" {self.failed} failed writes, {self.snapshots} snapshots and {self.ranges} ranges"
            f" read alike by hudi-rs, but for {self.unread} of the past that it cannot read"
        )


@pytest.fixture(scope="module")
def tally(request):
    tally = Tally()
    yield tally
    request.config.summary_lines.append(str(tally))


class Sequence(RuleBasedStateMachine):
    """One table, the writes on it, and the model of it."""

    def __init__(self, model: TableModel, kind: TableType, folder: Path, tally: Tally) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.logs: Mapping[str, str] = {}
        self.folder = folder / str(tally.sequences)
        self.tally = tally
        self.clock = SimulatedClock()
        self.store = LocalStore(str(self.folder), disk=Disk(sync=lambda descriptor: None))
        self.columns: dict[str, pa.DataType] = dict(FIRST_COLUMNS)
        self.records: Records = {}
        self.history: dict[str, Records] = {}
        """By instant, in the order of time: a compaction that waited comes before what came meanwhile."""
        self.expired: set[str] = set()
        """The commits of which a clean may have removed files."""
        self.fault: Fault | None = None
        self.schema_before: pa.Schema | None = None
        self.is_intact = False
        tally.sequences += 1

    @initialize(
        draws=FIRST_BATCHES,
        dress=DRESSES,
        operation=st.sampled_from(("upsert", "insert", "insert_overwrite")),
        logs=st.sampled_from(LOGS),
    )
    def create(self, draws, dress, operation, logs):
        self.logs = logs if self.kind is TableType.MERGE_ON_READ else {}
        generator = self.model.generator
        payload = PAYLOADS["event time" if self.model.by_event_time else "latest write"]
        table_settings = new_table_settings(
            name="t",
            record_key=generator.record_key,
            partition_by=generator.partition_by,
            ordering="ts",
            table_type=self.kind,
            properties={**generator.properties, "hoodie.compaction.payload.class": payload},
        )
        create_new(self.store, self._location, table_settings, clock=self.clock, host=SimulatedHost())
        self.table = self._opened(self.store)
        getattr(self, operation)(draws, dress)

    @precondition(lambda self: self.kind is TableType.MERGE_ON_READ)
    @rule(logs=st.sampled_from(LOGS))
    def writes_treat_logs_otherwise(self, logs):
        self.logs = logs

    @rule()
    def a_new_process_opens_the_table(self):
        """Named so that it is the first: the shortest sequence then costs least."""
        self.table = self._opened(self.store)

    @rule(draws=BATCHES, dress=DRESSES)
    def upsert(self, draws, dress):
        rows = self._rows(draws, dress, flagged=True)
        self._write("upsert", self._batch(rows, dress), dress.options, self.model.upsert(self.records, rows))

    @rule(draws=BATCHES, dress=DRESSES, fault=FAULTS)
    def upsert_that_fails(self, draws, dress, fault):
        self.fault = fault
        self.upsert(draws, dress)

    @rule(draws=BATCHES, ordered=st.booleans(), by_partition=st.booleans())
    def delete(self, draws, ordered, by_partition):
        rows = self._rows(draws, Dress(), flagged=False)
        named = [*self.model.generator.record_key]
        if by_partition or not self.model.index.is_global:
            named += self._partition_columns
        if ordered:
            named.append("ts")
        batch = self._batch(rows, Dress()).select(list(dict.fromkeys(named)))
        self._write("delete", batch, {}, self.model.delete(self.records, rows, ordered=ordered))

    @rule(draws=BATCHES, dress=DRESSES)
    def insert(self, draws, dress):
        """Of fresh keys: others would not be looked for, and be there twice."""
        rows = self._fresh(self._rows_to_add(draws, dress), self.records)
        self._write("insert", self._batch(rows, dress), dress.options, self.model.insert(self.records, rows))

    @rule(draws=BATCHES, dress=DRESSES)
    def bulk_insert(self, draws, dress):
        rows = self._fresh(self._rows_to_add(draws, dress), self.records)
        outcome = self.model.insert(self.records, rows)
        self._write("bulk_insert", self._batch(rows, dress), dress.options, outcome)

    @rule(draws=BATCHES, dress=DRESSES)
    def insert_overwrite(self, draws, dress):
        rows = self._rows_to_add(draws, dress)
        while rows != (fresh := self._fresh(rows, self._beside(rows))):
            rows = fresh  # of fewer partitions, perhaps, so that more records stay
        outcome = self.model.overwrite(self.records, rows)
        self._write("insert_overwrite", self._batch(rows, dress), dress.options, outcome)

    @rule(draws=BATCHES, dress=DRESSES)
    def insert_overwrite_table(self, draws, dress):
        rows = self._rows_to_add(draws, dress)
        outcome = self.model.insert({}, rows)
        self._write("insert_overwrite_table", self._batch(rows, dress), dress.options, outcome)

    @precondition(lambda self: self.records)
    @rule(first=st.integers(0, 2), count=st.integers(1, 2))
    def delete_partitions(self, first, count):
        known = sorted({record.partition for record in self.records.values()})
        chosen = {known[(first + number) % len(known)] for number in range(count)}
        self._write(
            "delete_partitions", sorted(chosen), {}, Outcome(self.model.without(self.records, chosen))
        )

    @rule(change=st.sampled_from(("column", "nested field", "wider number", "flag")))
    def the_schema_grows(self, change):
        """From the next write on."""
        match change:
            case "column":
                self.columns["extra"] = pa.string()
            case "nested field":
                self.columns["place"] = pa.struct({"x": pa.int32(), "y": pa.string()})
            case "wider number":
                self.columns["v"] = WIDER[self.columns["v"]]
            case "flag":
                self.columns[FLAG] = pa.bool_()

    @precondition(lambda self: self.kind is TableType.MERGE_ON_READ)
    @rule(draws=BATCHES, dress=DRESSES, waits=st.booleans())
    def upsert_and_compact(self, draws, dress, waits):
        """Or plan it, for another time; what is planned already comes first."""
        self.upsert(draws, dress)
        if waits:
            self.table.schedule_compaction(options={**self.logs})
        else:
            commit = self.table.compact(options={**self.logs})
            if commit is not None:
                before = max(time for time in self.history if time < commit.instant)
                self.history = dict(sorted({**self.history, commit.instant: self.history[before]}.items()))
                self.tally.compactions += 1
        self._check_snapshot(self.records)

    @precondition(lambda self: len(self._readable) > 1)
    @rule()
    def undo(self):
        taken_back = self.table.undo().rolled_back
        del self.history[taken_back]
        self._go_back(list(self.history)[-1])

    @precondition(lambda self: len(self._readable) > 1)
    @rule(number=st.integers(0, 9))
    def restore(self, number):
        target = self._readable[:-1][number % (len(self._readable) - 1)]
        self.table.restore(to=target)
        self.history = {time: records for time, records in self.history.items() if time <= target}
        self._go_back(target)

    @rule(retained=st.integers(1, 2))
    def clean(self, retained):
        self.table.clean({"hoodie.clean.commits.retained": str(retained)})
        self.expired |= {*list(self.history)[:-retained]}
        self.tally.cleans += 1
        self._check_snapshot(self.records)

    @rule(fault=FAULTS)
    def the_next_write_fails(self, fault):
        """Whatever it is."""
        self.fault = fault

    def teardown(self) -> None:
        if not self.is_intact:
            return
        times = [BEFORE_ALL, *self._readable]
        for number, until in enumerate(self._readable, start=1):
            records = self.history[until]
            if until != times[-1]:  # which is the state that was checked last
                self._check_snapshot(records, as_of=until)
            since = times[number - 1] if number % 2 else times[number * 7 % (number - 1)]
            self._check_changes(since, until, records)
        _check_schemas(self.table.schema(), hudi_schema(self.folder))
        shutil.rmtree(self.folder)

    # --- going back

    @property
    def _readable(self) -> list[str]:
        """The commits as of which the table can be read."""
        return [time for time in self.history if time not in self.expired]

    def _go_back(self, target: str) -> None:
        self.records = self.history[target]
        self.tally.taken_back += 1
        shown = {i.time for i in self.table.timeline() if i.action in COMMITS and i.is_completed}
        assert shown == set(self.history), "not the commits that were to stand"
        self._check_snapshot(self.records)

    # --- rows

    @property
    def _location(self) -> StoreLocation:
        return StoreLocation(str(self.folder), {})

    @property
    def _partition_columns(self) -> list[str]:
        return [name.partition(":")[0] for name in self.model.generator.partition_by]

    def _rows(self, draws: list[Draw], dress: Dress, *, flagged: bool) -> list[Row]:
        return [self._row(draw, dress, flagged=flagged) for draw in draws]

    def _rows_to_add(self, draws: list[Draw], dress: Dress) -> list[Row]:
        rows = self._rows(draws, dress, flagged=False)
        return rows if dress.has_duplicates else self.model.reduced(rows)

    def _row(self, draw: Draw, dress: Dress, *, flagged: bool) -> Row:
        has_numbers = "n" in self.model.generator.record_key
        row: dict[str, Any] = {
            "id": IDS[draw.key // 2 if has_numbers else draw.key],
            "n": draw.key % 2,
            "city": "oslo",
            "zone": draw.value,
            "at": draw.value,
            "ts": draw.ordering,
            "v": VALUES[draw.value] + (0 if dress.is_narrow else BEYOND[self.columns["v"]]),
            "place": {"x": draw.value, "y": f"y{draw.value}"} if draw.value else None,
            "extra": f"e{draw.value}",
            FLAG: draw.is_deleted if flagged else False,
            **self.model.generator.places[draw.place][0],
        }
        known = self._batch_schema(dress)
        row = {name: row[name] for name in known.names}
        if row["place"] is not None:
            row["place"] = {name: row["place"][name] for name in known.field("place").type.names}
        return row

    def _batch_schema(self, dress: Dress) -> pa.Schema:
        columns = dict(self.columns)
        if dress.is_narrow:
            columns["v"] = pa.int32()
        if dress.is_sparse:
            columns["place"] = pa.struct({"x": pa.int32()})
            for name in ("v", "extra", "zone"):
                if name not in self._partition_columns:
                    columns.pop(name, None)
        names = reversed(columns) if dress.is_reversed else columns
        return pa.schema([(name, columns[name]) for name in names])

    def _batch(self, rows: list[Row], dress: Dress) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=self._batch_schema(dress))

    def _fresh(self, rows: list[Row], records: Records) -> list[Row]:
        return [row for row in rows if self.model.identity(row) not in records]

    def _beside(self, rows: list[Row]) -> Records:
        """The records that stay if the rows replace the partitions they are of."""
        return self.model.beside(self.records, self.model.reduced(rows))

    # --- writes

    def _opened(self, store: Store) -> Table:
        return Table(open_existing(store, self._location, clock=self.clock, host=SimulatedHost()))

    def _write(
        self, operation: str, what: pa.Table | list[str], options: Mapping[str, str], outcome: Outcome
    ) -> None:
        self.is_intact = False
        self.schema_before = self.table.schema() if self.history else None
        table = self.table if self.fault is None else self._opened(self.fault.store(self.store))
        self.fault = None
        try:
            commit = getattr(table, operation)(
                what, options={**self.model.index.options, **self.logs, **options}
            )
        except (Crash, StorageUnavailable, OutcomeUnknown):
            self._recover(outcome)
        else:
            self._check_counts(commit, outcome)
            self._commit(commit.instant, outcome)
            self._check_written(commit)
        self.is_intact = bool(self.history)

    def _recover(self, outcome: Outcome) -> None:
        """The write stands, if it was decided, or nothing of it does."""
        self.table.roll_back_failed_writes()
        completed = {i.time for i in self.table.timeline() if i.action in COMMITS and i.is_completed}
        for instant in completed - self.history.keys():
            self._commit(instant, outcome)
        if self.history:
            self._check_snapshot(self.records)
        self.tally.failed += 1

    def _commit(self, instant: str, outcome: Outcome) -> None:
        self.records = outcome.at(instant)
        self.history[instant] = self.records
        self.tally.commits += 1

    # --- checks

    def _check_counts(self, commit: Commit, outcome: Outcome) -> None:
        found = (commit.records_inserted, commit.records_updated, commit.records_deleted)
        assert found == (outcome.inserted, outcome.updated, outcome.deleted), "counts of the commit"
        path = instant_file(commit.instant, commit.action, State.COMPLETED)
        by_partition = decode_commit(self.store.read(path)).partition_to_write_stats
        stats = [stat for stats in by_partition.values() for stat in stats]
        assert commit.files_written == len(stats), "files written"
        self.tally.logs += sum(".log." in (stat.path or "") for stat in stats)
        idle = [s.path for s in stats if not s.num_inserts + s.num_update_writes + s.num_deletes]
        before, after = self.schema_before, self.table.schema()
        is_typed_anew = before is not None and any(after.field(f.name).type != f.type for f in before)
        # hudi-rs cannot read log files of older types: they are merged where types change.
        is_settled = is_typed_anew and self.kind is TableType.MERGE_ON_READ
        assert is_settled or not idle, f"written without need: {idle}"

    def _check_written(self, commit: Commit) -> None:
        rows = self._check_snapshot(self.records)
        written = 0
        for row in rows.select(["_hoodie_file_name", "_hoodie_commit_time"]).to_pylist():
            name, time = row.values()
            is_in_log = not name.endswith(".parquet")
            written += time == commit.instant if is_in_log else name.endswith(f"_{commit.instant}.parquet")
        assert commit.records_written == written, "records written"

    def _check_snapshot(self, records: Records, *, as_of: str | None = None) -> pa.Table:
        ours = self.table.to_arrow(as_of=as_of, meta_columns=True)
        theirs = self._read_past(lambda: hudi_snapshot(self.folder, as_of=as_of), is_past=as_of is not None)
        assert theirs is None or _seen(ours) == _seen(theirs), f"hudi-rs reads something else as of {as_of}"
        assert _spelled(ours) == _expected(records.values()), f"not what was written, as of {as_of}"
        _check_numbers(ours)
        self.tally.snapshots += 1
        return ours

    def _read_past(self, read: Callable[[], pa.Table], *, is_past: bool) -> pa.Table | None:
        """What hudi-rs reads; None where it misses the type that a log file had before the schema grew."""
        try:
            return read()
        except Exception as error:
            if is_past and self.kind is TableType.MERGE_ON_READ and "partial-update column" in str(error):
                self.tally.unread += 1
                return None
            raise

    def _check_changes(self, since: str, until: str, records: Records) -> None:
        changed = [record for record in records.values() if record.time > since]
        ours = self.table.changes_to_arrow(since=since, until=until, meta_columns=True)
        theirs = self._read_past(
            lambda: hudi_changes(self.folder, since=since, until=until),
            is_past=until != list(self.history)[-1],
        )
        assert _spelled(ours) == _expected(changed), f"not the changes of ({since}, {until}]"
        assert theirs is None or _seen(ours) == _seen(theirs), (
            f"hudi-rs reads other changes of ({since}, {until}]"
        )
        with_deletes = self.table.changes_to_arrow(since=since, until=until, deletes=True, meta_columns=True)
        became = _expected_row_changes(self.history.get(since, {}), records)
        assert _spelled(with_deletes) == became, f"not what became of records in ({since}, {until}]"
        self.tally.ranges += 1


def _seen(table: pa.Table) -> list[str]:
    """Every row with all its columns, in a form that two readers share."""
    return sorted(json.dumps(_plain(row), sort_keys=True) for row in table.to_pylist())


def _spelled(table: pa.Table) -> list[str]:
    """The rows with the meta columns a model can foretell."""
    free = ("_hoodie_file_name", "_hoodie_commit_seqno")
    return _seen(table.drop_columns([name for name in free if name in table.column_names]))


def _expected(records) -> list[str]:
    return sorted(_text(record) for record in records)


def _text(record, **more) -> str:
    meta = {
        "_hoodie_commit_time": record.time,
        "_hoodie_record_key": record.key,
        "_hoodie_partition_path": record.partition,
    }
    return json.dumps(_plain({**more, **meta, **record.row}), sort_keys=True)


def _expected_row_changes(before: Records, after: Records) -> list[str]:
    """What became of each record, which is known by its partition and key."""
    old = {(record.partition, record.key): record for record in before.values()}
    new = {(record.partition, record.key): record for record in after.values()}
    changes = [_text(old[known], _change_type="delete") for known in old.keys() - new.keys()]
    changes += [_text(new[known], _change_type="insert") for known in new.keys() - old.keys()]
    for known in old.keys() & new.keys():
        if _plain(old[known].row) != _plain(new[known].row):
            changes.append(_text(old[known], _change_type="update_before"))
            changes.append(_text(new[known], _change_type="update_after"))
    return sorted(changes)


def _plain(value: Any) -> Any:
    """Nulls left out, as they are where a column did not exist yet; whole numbers in one spelling."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _check_numbers(rows: pa.Table) -> None:
    """No two rows of a file have the same sequence number."""
    numbered = rows.select(["_hoodie_file_name", "_hoodie_commit_seqno"])
    assert numbered.group_by(numbered.column_names).aggregate([]).num_rows == rows.num_rows


def _check_schemas(ours: pa.Schema, theirs: pa.Schema) -> None:
    data = [field for field in theirs if not field.name.startswith("_hoodie_") or field.name == FLAG]
    assert [(f.name, f.type) for f in ours] == [(f.name, f.type) for f in data]


@pytest.mark.parametrize("kind", TableType)
@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.name)
def test_hudi_reads_what_the_model_holds_after_any_sequence(index, generator, kind, tally, tmp_path):
    for by_event_time in (True, False):
        model = TableModel(generator, index, by_event_time)
        name = f"{index.name} {generator.name} {by_event_time}"

        @seed(zlib.crc32(name.encode()))
        def sequence(model: TableModel = model) -> Sequence:
            return Sequence(model, kind, tmp_path, tally)

        run_state_machine_as_test(sequence, settings=_settings())


def _settings() -> settings:
    return settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
