"""Which rows the commits of a range wrote, and which files are opened to find them."""

import datetime as dt
import itertools
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.faults import StoreWrapper
from harness.hudi_reader import hudi_changes
from harness.world import memory_world
from holdfast.errors import InvalidRequest, SnapshotExpired, TableDamaged, UnknownInstant, UnsupportedTable
from holdfast.format.commits import DIGEST, CommitMetadata, WriteStat, decode_commit, encode_commit
from holdfast.format.schemas import META_COLUMNS
from holdfast.model.instant import InstantTime, moment_of, time_at
from holdfast.model.names import parse_base_file
from holdfast.read.changes import COMMIT_TIME, change_schema, changes, each_change, read_changes
from holdfast.table.opened import open_at

BEFORE_ALL = InstantTime("20000101000000000")
LATER = 1000


class Lake:
    """A table on disk with three inserts, and ways to continue it as an upsert or an overwrite would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = holdfast.create_table(str(folder), name="t", record_key="id", partition_by="city")
        self.times = [
            self.table.insert(_rows("a", "b", city="paris")).instant,
            self.table.bulk_insert(_rows("c", "d", city="rome")).instant,
            self.table.insert(_rows("e", "f", city="paris")).instant,
        ]

    def next_time(self) -> InstantTime:
        return time_at(round(moment_of(self.times[-1], dt.UTC).timestamp() * 1000) + LATER, dt.UTC)

    def update(self, row_id: str) -> InstantTime:
        """A new version of the row's file: unchanged rows in one row group, the changed one in another."""
        time = self.next_time()
        old = next(path for path in self.table.files() if row_id in pq.read_table(path)["id"].to_pylist())
        name = replace(parse_base_file(Path(old).name), instant=time)
        path = Path(old).with_name(str(name))
        rows = pq.ParquetFile(old).read()
        is_changed = pc.equal(rows["id"], row_id)
        changed = rows.filter(is_changed)
        for column, value in ((COMMIT_TIME, time), ("fare", 99.5)):
            changed = changed.set_column(
                rows.column_names.index(column), column, pa.array([value] * changed.num_rows)
            )
        with pq.ParquetWriter(path, rows.schema, write_page_checksum=True) as writer:
            writer.write_table(rows.filter(pc.invert(is_changed)))
            writer.write_table(changed.cast(rows.schema))
        self.publish(time, "commit", path, previous=parse_base_file(Path(old).name).instant)
        return time

    def overwrite_paris(self, *ids: str) -> InstantTime:
        """New rows in a new file group; a replacecommit that hides what the partition had."""
        time = self.next_time()
        paths = [Path(path) for path in self.table.files() if "city=paris" in path]
        replaced = {"city=paris": [parse_base_file(path.name).file_id for path in paths]}
        template = pq.ParquetFile(paths[0]).read()
        count = len(ids)
        new = pa.table(
            [[time] * count, [f"{time}_0_{n}" for n in range(count)], ids, ["city=paris"] * count,
             ["x"] * count, ids, ["paris"] * count, [7.0] * count],
            names=template.column_names,
        ).cast(template.schema)  # fmt: skip
        path = paths[0].with_name(f"overwritten-0_0-0-0_{time}.parquet")
        pq.write_table(new, path)
        self.publish(time, "replacecommit", path, replaced=replaced)
        return time

    def cluster_paris(self) -> InstantTime:
        """As Hudi's clustering: the rows of a partition, as they are, in one new file group."""
        time = self.next_time()
        paths = [Path(path) for path in self.table.files() if "city=paris" in path]
        replaced = {"city=paris": [parse_base_file(path.name).file_id for path in paths]}
        path = paths[0].with_name(f"clustered-0_0-0-0_{time}.parquet")
        pq.write_table(pa.concat_tables([pq.ParquetFile(path).read() for path in paths]), path)
        self.publish(time, "replacecommit", path, replaced=replaced)
        return time

    def publish(self, time, action, path, *, previous="null", replaced=None):
        relative = str(path.relative_to(self.folder))
        stat = WriteStat(
            file_id=parse_base_file(path.name).file_id,
            path=relative,
            partition_path=relative.rpartition("/")[0],
            prev_commit=previous,
            file_size_in_bytes=path.stat().st_size,
        )
        first = self.folder / ".hoodie" / f"{self.times[0]}.commit"
        extra = decode_commit(first.read_bytes()).extra_metadata
        extra = {key: value for key, value in extra.items() if key != DIGEST}
        metadata = CommitMetadata(
            {stat.partition_path: [stat]},
            extra_metadata=extra,
            operation_type="UPSERT" if replaced is None else "INSERT_OVERWRITE",
        )
        if replaced is not None:
            metadata = CommitMetadata(
                metadata.partition_to_write_stats,
                extra_metadata=metadata.extra_metadata,
                operation_type=metadata.operation_type,
                partition_to_replace_file_ids=replaced,
            )
        (self.folder / ".hoodie" / f"{time}.{action}").write_bytes(encode_commit(metadata))
        self.times.append(time)

    def archive(self, time: InstantTime) -> None:
        for file in (self.folder / ".hoodie").glob(f"{time}.*"):
            file.unlink()

    def clean(self, *files: Path) -> InstantTime:
        time = self.next_time()
        for file in files:
            file.unlink()
        (self.folder / ".hoodie" / f"{time}.clean").write_bytes(b"x")
        return time

    def ids(self, **where) -> list[str]:
        return sorted(self.table.changes_to_arrow(**where)["id"].to_pylist())


def _rows(*ids, city):
    return pa.table({"id": list(ids), "city": [city] * len(ids), "fare": [1.5] * len(ids)})


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


def same_rows(ours, theirs):
    """Whether two tables have the same rows, in whatever order of rows."""
    key = [("_hoodie_record_key", "ascending"), ("_hoodie_commit_seqno", "ascending")]
    columns = ours.column_names
    return ours.sort_by(key).to_pylist() == theirs.select(columns).sort_by(key).to_pylist()


def every_range(times):
    return itertools.combinations([BEFORE_ALL, *times], 2)


def test_the_start_is_not_part_of_the_range_and_the_end_is(lake):
    t1, t2, t3 = lake.times

    assert lake.ids(since=t1) == ["c", "d", "e", "f"]
    assert lake.ids(since=t1, until=t2) == ["c", "d"]
    assert lake.ids(since=BEFORE_ALL, until=t1) == ["a", "b"]
    assert lake.ids(since=t2, until=t3) == ["e", "f"]


def test_a_row_that_changed_twice_is_reported_once_as_it_stood_at_the_end(lake):
    t4 = lake.update("a")
    t5 = lake.update("a")
    lake.update("b")

    found = lake.table.changes_to_arrow(since=lake.times[2], until=t5)

    assert found.select([COMMIT_TIME, "id", "fare"]).to_pylist() == [
        {COMMIT_TIME: t5, "id": "a", "fare": 99.5}
    ]
    assert lake.ids(since=lake.times[2], until=t4) == ["a"]
    assert lake.ids(since=t4) == ["a", "b"]
    assert lake.ids(since=BEFORE_ALL, until=t4) == ["a", "b", "c", "d", "e", "f"]


def test_what_a_range_wrote_and_replaced_again_is_not_reported(lake):
    lake.update("a")
    t5 = lake.overwrite_paris("x", "y")

    assert lake.ids(since=lake.times[0], until=t5) == ["c", "d", "x", "y"]
    assert lake.ids(since=lake.times[0], until=lake.times[3]) == ["a", "c", "d", "e", "f"]


def test_hudi_reports_the_same_rows_for_every_range(lake):
    lake.update("a")
    lake.update("d")
    lake.overwrite_paris("x", "y")
    lake.update("x")

    for since, until in every_range(lake.times):
        ours = lake.table.changes_to_arrow(since=since, until=until, meta_columns=True)
        assert same_rows(ours, hudi_changes(lake.folder, since=since, until=until)), (since, until)
    assert ours.num_rows == 1


@pytest.mark.parametrize(
    "name",
    [
        "cow_v6_nonpartitioned",
        "cow_v6_simplekeygen_nonhivestyle",
        "cow_v6_simplekeygen_nonhivestyle_overwritetable",
        "cow_v6_timebasedkeygen_nonhivestyle",
    ],
)
def test_hudi_reports_the_same_rows_of_its_own_tables(name, hudi_fixture):
    folder = hudi_fixture(name)
    table = holdfast.open_table(str(folder))
    times = [instant.time for instant in table.timeline()]

    for since, until in every_range(times):
        ours = table.changes_to_arrow(since=since, until=until, meta_columns=True)
        assert ours.num_rows > 0
        assert same_rows(ours, hudi_changes(folder, since=since, until=until)), (since, until)


def test_the_commit_time_comes_first_and_other_meta_columns_when_asked(lake):
    t1 = lake.times[0]

    assert lake.table.changes_to_arrow(since=t1).column_names == [COMMIT_TIME, "id", "city", "fare"]
    assert lake.table.changes_to_arrow(since=t1, columns=["fare"]).column_names == [COMMIT_TIME, "fare"]
    assert lake.table.changes_to_arrow(since=t1, columns=["id", COMMIT_TIME]).column_names == [
        "id",
        COMMIT_TIME,
    ]
    assert lake.table.changes_to_arrow(since=t1, meta_columns=True).column_names == [
        *META_COLUMNS,
        "id",
        "city",
        "fare",
    ]
    with pytest.raises(InvalidRequest, match="no such column"):
        lake.table.changes_to_arrow(since=t1, columns=["nope"])


def test_both_ends_can_be_given_in_many_ways(lake):
    instants = lake.table.timeline()
    moments = [moment_of(time, dt.UTC) for time in lake.times]
    commit = lake.table.insert(_rows("g", city="rome"))

    assert lake.ids(since=instants[0], until=instants[1]) == ["c", "d"]
    assert lake.ids(since=moments[0], until=moments[1].isoformat()) == ["c", "d"]
    assert lake.ids(since=instants[2], until=commit) == ["g"]
    assert lake.ids(since=commit) == []
    with pytest.raises(UnknownInstant, match="ISO"):
        lake.table.changes_to_arrow(since="yesterday")


def test_the_ends_need_not_be_commits(lake):
    t1, t2, _ = lake.times
    just_after = moment_of(t1, dt.UTC) + dt.timedelta(milliseconds=1)

    assert lake.ids(since=moment_of(t1, dt.UTC) - dt.timedelta(milliseconds=1), until=t1) == ["a", "b"]
    if time_at(round(just_after.timestamp() * 1000), dt.UTC) < t2:
        assert lake.ids(since=just_after, until=t2) == ["c", "d"]
    with pytest.raises(UnknownInstant, match="still to come"):
        lake.table.changes_to_arrow(since=t2, until=dt.datetime(2999, 1, 1, tzinfo=dt.UTC))


def test_an_empty_range_gives_no_rows_in_the_right_schema(lake):
    t1, _, t3 = lake.times
    expected = pa.schema([pa.field(COMMIT_TIME, pa.string()), *lake.table.schema()])

    for where in ({"since": t3}, {"since": t1, "until": t1}, {"since": "29990101000000000"}):
        found = lake.table.changes_to_arrow(**where)
        assert (found.num_rows, found.schema) == (0, expected)


def test_a_table_without_commits_has_no_changes(tmp_path):
    table = holdfast.create_table(str(tmp_path / "empty"), name="t", record_key="id")

    assert table.changes_to_arrow(since=BEFORE_ALL).column_names == [COMMIT_TIME]


def test_a_range_that_ends_before_it_begins_is_refused(lake):
    with pytest.raises(InvalidRequest, match="ends before it begins"):
        lake.table.changes_to_arrow(since=lake.times[1], until=lake.times[0])


def test_a_range_that_a_clean_has_eaten_has_expired(lake):
    before = {Path(path) for path in lake.table.files()}
    t4 = lake.update("a")
    (superseded,) = before - {Path(path) for path in lake.table.files()}
    t5 = lake.clean(superseded)

    with pytest.raises(SnapshotExpired, match=t5):
        lake.table.changes_to_arrow(since=lake.times[0], until=lake.times[2])
    assert lake.ids(since=lake.times[2], until=t4) == ["a"]
    assert lake.ids(since=BEFORE_ALL) == ["a", "b", "c", "d", "e", "f"]


def test_archived_commits_are_part_of_a_range(lake):
    t1, t2, t3 = lake.times
    lake.archive(t1)
    lake.archive(t2)

    assert lake.ids(since=BEFORE_ALL) == ["a", "b", "c", "d", "e", "f"]
    assert lake.ids(since=t1) == ["c", "d", "e", "f"]
    assert lake.ids(since=t2, until=t3) == ["e", "f"]


def test_rows_of_a_write_that_did_not_finish_are_not_reported(lake):
    t4 = lake.update("a")
    (lake.folder / ".hoodie" / f"{t4}.commit").rename(lake.folder / ".hoodie" / f"{t4}.inflight")

    assert lake.ids(since=lake.times[2]) == []


def test_tables_whose_rows_name_no_commit_are_refused(hudi_fixture):
    table = holdfast.open_table(str(hudi_fixture("cow_v6_simplekeygen_hivestyle_no_metafields")))

    with pytest.raises(UnsupportedTable, match="do not say which commit"):
        table.changes_to_arrow(since=BEFORE_ALL)


class WatchedStore(StoreWrapper):
    """Remembers which data files were opened."""

    def __init__(self, inner):
        super().__init__(inner)
        self.opened = []

    def open(self, path):
        self.opened.append(path)
        return super().open(path)


def test_no_file_outside_the_range_is_opened():
    world = memory_world()
    world.create()
    commits = [world.insert(f"k{n}", f"l{n}") for n in range(20)]
    store = WatchedStore(world.store)
    table = world.on(store).open()

    found = changes(table, since=commits[9], until=commits[10])
    read = read_changes(store, found, change_schema(found.snapshot.schema, columns=None, meta_columns=False))

    assert sorted(read["id"].to_pylist()) == ["k10", "l10"]
    assert len(set(store.opened)) == 2
    assert all(commits[10].instant in path for path in store.opened)


def _spoil_first_row_group(path: Path) -> None:
    """Damage every page of the rows that did not change."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    content = bytearray(path.read_bytes())
    for column in map(group.column, range(group.num_columns)):
        start = column.dictionary_page_offset or column.data_page_offset
        content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)


def test_row_groups_without_a_changed_row_are_not_read(lake):
    t4 = lake.update("a")
    (path,) = lake.folder.glob(f"*/*_{t4}.parquet")
    _spoil_first_row_group(path)

    assert lake.ids(since=lake.times[2]) == ["a"]
    with pytest.raises(TableDamaged):
        lake.table.changes_to_arrow(since=BEFORE_ALL)


def test_commit_times_stored_in_another_form_are_compared_all_the_same(lake):
    t4 = lake.update("a")
    (path,) = lake.folder.glob(f"*/*_{t4}.parquet")
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.set_column(0, COMMIT_TIME, rows[COMMIT_TIME].dictionary_encode()), path)

    assert lake.ids(since=lake.times[2]) == ["a"]


def test_a_file_without_commit_times_is_damage(lake):
    (path,) = lake.folder.glob(f"*/*_{lake.times[1]}.parquet")
    pq.write_table(pq.ParquetFile(path).read().drop_columns(list(META_COLUMNS)), path)

    with pytest.raises(TableDamaged, match="without a commit time"):
        lake.table.changes_to_arrow(since=lake.times[0])


def test_many_changes_come_in_parts(tmp_path):
    path = str(tmp_path / "t")
    table = holdfast.create_table(path, name="t", record_key="id")
    first = table.insert(pa.table({"id": pa.array(range(1000), pa.int64())}))
    table.bulk_insert(pa.table({"id": pa.array(range(1000, 301_000), pa.int64())}))
    source = open_at(path, {})

    found = changes(source, since=first)
    schema = change_schema(found.snapshot.schema, columns=["id"], meta_columns=False)
    sizes = [part.num_rows for part in each_change(source.store, found, schema)]

    assert sum(sizes) == 300_000
    assert max(sizes) <= 50_000


def test_only_the_first_files_of_groups_are_known_to_hold_nothing_older(lake):
    begin, t2, t3 = lake.times
    t4 = lake.update("a")
    t5 = lake.cluster_paris()
    t6 = lake.table.insert(_rows("z", city="oslo")).instant
    table = lake.table._opened

    def has_older_rows(since, until):
        return changes(table, since=since, until=until).has_older_rows

    assert not has_older_rows(BEFORE_ALL, t2)
    assert not has_older_rows(begin, t2)
    assert has_older_rows(t2, t3), "an insert fills a small file group"
    assert has_older_rows(t3, t4)
    assert has_older_rows(t4, t5)
    assert lake.ids(since=t4, until=t5) == [], "clustering changes no row"
    assert lake.ids(since=t3, until=t5) == ["a"]
    assert not has_older_rows(t5, t6)
    lake.archive(begin)
    assert has_older_rows(BEFORE_ALL, t2), "nothing tells it any more"


@pytest.mark.spark
def test_spark_reports_the_same_rows_and_scans_only_files_of_the_range(lake, spark):
    t4 = lake.update("a")
    lake.cluster_paris()
    lake.overwrite_paris("x")
    (path,) = lake.folder.glob(f"*/*_{t4}.parquet")

    for since, until in every_range(lake.times):
        frame = lake.table.changes(spark, since=since, until=until, meta_columns=True)
        theirs = lake.table.changes_to_arrow(since=since, until=until, meta_columns=True)
        ours = pa.Table.from_pylist([row.asDict() for row in frame.collect()], schema=theirs.schema)
        assert same_rows(ours, theirs)
    frame = lake.table.changes(spark, since=lake.times[2], until=t4)
    assert [Path(file).name for file in frame.inputFiles()] == [path.name]
    assert frame.columns == [COMMIT_TIME, "id", "city", "fare"]
    _spoil_first_row_group(path)
    assert [row.id for row in frame.collect()] == ["a"]
    empty = lake.table.changes(spark, since=lake.times[-1])
    assert (empty.count(), empty.schema) == (0, frame.schema)
