"""What a range of commits did to each record, against a dict, over random histories."""

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import SnapshotExpired, UnknownInstant
from holdfast.files.equal_rows import find_equal_rows
from holdfast.read.row_changes import CHANGE_TYPE

BEFORE_ALL = "20000101000000000"
CITIES = ("oslo", "rome")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("value", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct({"x": pa.float64()})),
    ]
)


def rows_of(*rows):
    """Rows from (id, city, value)."""
    return pa.Table.from_pylist([row_of(*row) for row in rows], schema=SCHEMA)


def row_of(key, city, value):
    return {
        "id": key,
        "city": city,
        "value": value,
        "tags": None if value % 5 == 0 else [f"t{value}", None],
        "place": {"x": float("nan") if value % 3 == 0 else value / 2},
    }


class History:
    """A table on disk and the dict of its records after each commit."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = holdfast.create_table(
            str(folder), name="t", record_key="id", partition_by="city", table_type=kind
        )
        self.records: dict[tuple[str, str], int] = {}
        self.states: dict[str, dict] = {BEFORE_ALL: {}}

    def note(self, commit) -> None:
        self.states[commit.instant] = dict(self.records)

    def draw(self, count=4):
        drawn = {}
        for _ in range(self.random.randint(1, count)):
            place = self.random.choice(CITIES), f"k{self.random.randrange(8)}"
            drawn[place] = self.random.randrange(6)
        return drawn

    def write(self, verb, drawn, **options):
        rows = rows_of(*((key, city, value) for (city, key), value in drawn.items()))
        self.note(getattr(self.table, verb)(rows, **options))

    def upsert(self):
        drawn = self.draw()
        self.records |= drawn
        # New rows to new file groups, at times: then partitions have several.
        options = {"hoodie.parquet.small.file.limit": "0"} if self.random.random() < 0.5 else {}
        self.write("upsert", drawn, options=options)

    def delete(self):
        drawn = self.draw()
        self.records = {place: value for place, value in self.records.items() if place not in drawn}
        self.write("delete", drawn)

    def insert_overwrite(self):
        drawn = self.draw()
        cities = {city for city, _ in drawn}
        self.records = {place: v for place, v in self.records.items() if place[0] not in cities} | drawn
        self.write("insert_overwrite", drawn)

    def delete_partitions(self):
        city = self.random.choice(CITIES)
        self.records = {place: v for place, v in self.records.items() if place[0] != city}
        self.note(self.table.delete_partitions([f"city={city}"]))

    def delete_and_insert_again(self):
        """What was deleted comes back, in another file group, with the same values or others."""
        gone = self.draw(2)
        self.delete_all(gone)
        self.records |= gone
        self.write("insert", gone, options={"hoodie.parquet.small.file.limit": "0"})

    def delete_all(self, gone):
        self.records = {place: v for place, v in self.records.items() if place not in gone}
        self.write("delete", gone)

    def cluster(self):
        """The rows as they are, in new file groups, and an overwrite that says so."""
        if self.records:
            self.write("insert_overwrite_table", self.records)

    def compact(self):
        if self.table.settings.table_type == "MERGE_ON_READ":
            commit = self.table.compact()
            if commit is not None:
                self.note(commit)

    def undo(self):
        if len(self.states) > 2:
            gone = self.table.undo().rolled_back
            self.states = {time: state for time, state in self.states.items() if time not in str(gone)}
            newest = max(commit.time for commit in self.table.timeline() if is_commit(commit))
            self.states = {time: state for time, state in self.states.items() if time <= newest}
            self.records = dict(self.states[max(self.states)])

    def restore(self):
        times = [time for time in self.states if time != BEFORE_ALL]
        if len(times) > 2:
            to = self.random.choice(times[-3:])
            self.table.restore(to)
            self.states = {time: state for time, state in self.states.items() if time <= to}
            self.records = dict(self.states[to])

    def step(self):
        names = ("upsert", "upsert", "upsert", "delete", "insert_overwrite", "delete_partitions",
                 "delete_and_insert_again", "cluster", "compact", "undo", "restore")  # fmt: skip
        getattr(self, self.random.choice(names))()


def is_commit(instant):
    return instant.is_completed and instant.action in ("commit", "deltacommit", "replacecommit")


def expected(before, after):
    changes = []
    for place in before.keys() | after.keys():
        old, new = before.get(place), after.get(place)
        if old == new:
            continue
        if new is None:
            changes.append(("delete", place, old))
        elif old is None:
            changes.append(("insert", place, new))
        else:
            changes += [("update_before", place, old), ("update_after", place, new)]
    return sorted(changes)


def found(rows):
    for row in rows.to_pylist():
        assert repr(row_of(row["id"], row["city"], row["value"])) == repr({n: row[n] for n in SCHEMA.names})
    return sorted(
        zip(
            rows[CHANGE_TYPE].to_pylist(),
            zip(rows["city"].to_pylist(), rows["id"].to_pylist(), strict=True),
            rows["value"].to_pylist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_row_changes_of_every_range_are_what_became_of_a_dict(kind, seed, tmp_path):
    history = History(tmp_path / "t", kind, seed)
    history.upsert()

    for _ in range(8):
        history.step()

    assert len(history.states) > 1
    for since, until in itertools.combinations(history.states, 2):
        rows = history.table.changes_to_arrow(since=since, until=until, deletes=True)
        assert found(rows) == expected(history.states[since], history.states[until]), (since, until)
    newest = max(history.states)
    assert history.table.changes_to_arrow(since=newest, deletes=True).num_rows == 0


@pytest.fixture
def table(tmp_path):
    return holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", partition_by="city")


def test_an_update_stands_behind_the_row_as_it_was(table):
    first = table.insert(rows_of(("a", "oslo", 1), ("b", "oslo", 2), ("c", "oslo", 4)))
    table.upsert(rows_of(("a", "oslo", 7), ("c", "oslo", 8)))

    rows = table.changes_to_arrow(since=first, deletes=True, columns=["id", "value"])

    assert rows.column_names == [CHANGE_TYPE, "_hoodie_commit_time", "id", "value"]
    pairs = list(zip(rows[CHANGE_TYPE].to_pylist(), rows["id"].to_pylist(), strict=True))
    assert pairs == [
        ("update_before", "a"), ("update_after", "a"), ("update_before", "c"), ("update_after", "c"),
    ]  # fmt: skip


def test_an_update_of_a_column_that_was_not_asked_for_is_an_update(table):
    first = table.insert(rows_of(("a", "oslo", 1)))
    table.upsert(rows_of(("a", "oslo", 2)))

    rows = table.changes_to_arrow(since=first, deletes=True, columns=["id"])

    assert rows[CHANGE_TYPE].to_pylist() == ["update_before", "update_after"]


def test_a_record_that_moves_is_deleted_in_one_partition_and_inserted_in_the_other(table):
    first = table.insert(rows_of(("a", "oslo", 1)))
    table.upsert(rows_of(("a", "rome", 1)), options={
        "hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true",
    })  # fmt: skip

    rows = table.changes_to_arrow(since=first, deletes=True)

    assert found(rows) == [("delete", ("oslo", "a"), 1), ("insert", ("rome", "a"), 1)]


def test_rows_with_one_key_are_matched_in_the_order_they_were_written(table):
    first = table.insert(rows_of(("a", "oslo", 1)))
    second = table.insert(rows_of(("a", "oslo", 2)))
    table.delete(rows_of(("a", "oslo", 0)))

    assert found(table.changes_to_arrow(since=first, until=second, deletes=True)) == [
        ("insert", ("oslo", "a"), 2)
    ]
    assert found(table.changes_to_arrow(since=second, deletes=True)) == [
        ("delete", ("oslo", "a"), 1), ("delete", ("oslo", "a"), 2),
    ]  # fmt: skip


def test_a_column_that_came_later_is_null_before(table):
    first = table.insert(rows_of(("a", "oslo", 1), ("b", "oslo", 2)))
    wider = rows_of(("a", "oslo", 1)).append_column("more", pa.array(["x"]))
    table.upsert(wider)

    rows = table.changes_to_arrow(since=first, deletes=True, columns=["id", "more"]).to_pylist()

    assert [(row[CHANGE_TYPE], row["id"], row["more"]) for row in rows] == [
        ("update_before", "a", None), ("update_after", "a", "x"),
    ]  # fmt: skip


def test_row_changes_are_refused_where_a_clean_took_the_snapshot_before(table):
    first = table.insert(rows_of(("a", "oslo", 1)))
    for value in (2, 3, 4):
        last = table.upsert(rows_of(("a", "oslo", value)))
    table.clean({"hoodie.cleaner.commits.retained": "1"})

    with pytest.raises(SnapshotExpired):
        table.changes_to_arrow(since=first, deletes=True)
    assert table.changes_to_arrow(since=last, deletes=True).num_rows == 0


def test_files_of_groups_that_did_not_change_are_not_opened(table):
    table.insert(rows_of(("a", "oslo", 1)))
    first = table.insert(rows_of(("b", "rome", 1)))
    table.upsert(rows_of(("b", "rome", 2)))
    untouched = next(path for path in table.files() if "city=oslo" in path)
    content = Path(untouched).read_bytes()
    Path(untouched).write_bytes(b"x" * len(content))

    assert len(table.changes_to_arrow(since=first, deletes=True)) == 2


def test_an_instant_that_is_none_is_refused(table):
    with pytest.raises(UnknownInstant):
        table.changes_to_arrow(since="yesterday", deletes=True)


def test_rows_are_equal_by_value_whatever_their_types():
    kind = pa.schema(
        [
            ("f", pa.float64()),
            ("s", pa.struct({"x": pa.int32(), "l": pa.list_(pa.int32())})),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("b", pa.binary()),
        ]
    )
    row = {"f": float("nan"), "s": {"x": None, "l": [1, None]}, "m": [("k", 1)], "b": b"\0"}
    others = [
        {"f": 0.0}, {"s": None}, {"s": {"x": 1, "l": [1, None]}}, {"s": {"x": None, "l": [1, 2]}},
        {"s": {"x": None, "l": None}}, {"m": [("k", 2)]}, {"m": []}, {"b": None},
        {"s": {"x": None, "l": [1]}},
    ]  # fmt: skip
    left = pa.Table.from_pylist([row] * (1 + len(others)), schema=kind)
    right = pa.Table.from_pylist([row, *({**row, **other} for other in others)], schema=kind)

    assert find_equal_rows(left, right).tolist() == [True] + [False] * len(others)
    # A part of a larger table, with chunks.
    tail = pa.concat_tables([left.slice(3, 2), left.slice(5)])
    assert not find_equal_rows(tail, right.slice(3)).any()
