"""Whatever is done to a table, every engine reads the same rows from its exports, now and of the past."""

import random

import pyarrow as pa
import pytest

import holdfast
from harness.exported import past_rows, present_rows
from harness.hudi_reader import hudi_snapshot
from holdfast.errors import InvalidRequest, SnapshotExpired

STEPS = 14
OPTIONS = {"hoodie.clean.automatic": "false", "hoodie.write.set.null.for.missing.columns": "true"}
CITIES = ("oslo", "são paulo", "a%b", None)
"""With one more, whose name has a slash, they are no partitions in other formats."""
FORMATS = "delta"


def spelled(rows: pa.Table) -> list[str]:
    """Rows without regard to order, and without columns that are null."""
    return sorted(
        str(sorted((name, value) for name, value in row.items() if value is not None))
        for row in rows.to_pylist()
    )


class History:
    """A table, and things that are done to it by chance."""

    def __init__(self, folder, seed, kind):
        self.chance = random.Random(seed)
        self.cities = CITIES if seed else (*CITIES, "a/b")
        self.path = str(folder / "trips")
        self.table = holdfast.create_table(
            self.path,
            name="trips",
            record_key="id",
            partition_by="city",
            table_type=kind,
            properties={"holdfast.export.formats": FORMATS},
        )
        self.columns = [("id", pa.string()), ("city", pa.string()), ("count", pa.int32())]
        self.table.insert(self.rows(), options=OPTIONS)

    def rows(self):
        ids = self.chance.sample([f"id{number}" for number in range(30)], self.chance.randint(1, 6))
        values = {
            "id": ids,
            "city": [self.chance.choice(self.cities) for _ in ids],
            **{
                name: [self.chance.choice((None, 0, -3, 2**31 - 1)) for _ in ids]
                for name, _ in self.columns[2:]
            },
        }
        return pa.table(values, schema=pa.schema(self.columns))

    def step(self):
        act = self.chance.choice(
            (
                lambda: self.table.insert(self.rows(), options=OPTIONS),
                lambda: self.table.upsert(self.rows(), options=OPTIONS),
                lambda: self.table.upsert(self.rows(), options=OPTIONS),
                lambda: self.table.delete(self.rows().select(["id", "city"]), options=OPTIONS),
                lambda: self.table.insert_overwrite(self.rows(), options=OPTIONS),
                lambda: self.table.delete_partitions(["city=oslo"], options=OPTIONS),
                self.add_column,
                self.widen,
                lambda: self.table.clean({"hoodie.cleaner.commits.retained": "2"}),
                self.undo,
                self.restore,
                lambda: self.table.savepoint(comment="by chance"),
            )
        )
        try:
            report = act()
        except InvalidRequest:
            return
        assert not getattr(report, "post_commit_errors", ())

    def add_column(self):
        self.columns.append((f"more{len(self.columns)}", pa.int64()))
        return self.table.upsert(self.rows(), options=OPTIONS)

    def widen(self):
        self.columns[2] = ("count", pa.int64())
        return self.table.upsert(self.rows(), options=OPTIONS)

    def undo(self):
        if len(self.commits()) > 1:
            self.table.undo()

    def restore(self):
        self.table.restore(self.commits()[max(0, len(self.commits()) - 3)])

    def commits(self):
        return [i.time for i in self.table.timeline() if i.is_completed and "commit" in i.action]

    def expected(self, as_of=None):
        return self.table.to_arrow(as_of=as_of, read_optimized=True)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("seed", range(3))
def test_every_engine_reads_the_same_rows_after_every_operation(tmp_path, kind, seed):
    history = History(tmp_path, seed, kind)
    for _ in range(STEPS):
        history.step()
        expected = spelled(history.expected())
        for engine, rows in present_rows(history.table):
            assert spelled(rows) == expected, engine
        if kind == "COPY_ON_WRITE":
            assert spelled(hudi_snapshot(history.path).select(history.expected().column_names)) == expected
        assert [one.lag for one in history.table.exports()] == [0] * len(FORMATS.split(","))
    for instant in history.commits():
        try:
            expected = spelled(history.expected(instant))
        except SnapshotExpired:
            continue
        for engine, rows in past_rows(history.table, instant):
            assert spelled(rows) == expected, (engine, instant)
    assert history.table.verify().findings == ()
