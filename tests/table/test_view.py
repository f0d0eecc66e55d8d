"""Which files a snapshot consists of, by the rules of the format."""

import random

import pyarrow as pa
import pytest

from harness.merge_on_read import HudiTable
from holdfast.errors import SnapshotExpired, TableDamaged
from holdfast.format.commits import CommitMetadata, WriteStat, encode_commit
from holdfast.format.properties import render_properties
from holdfast.model.instant import InstantTime
from holdfast.model.names import PROPERTIES_FILE, LogFileName
from holdfast.storage.memory import MemoryStore
from holdfast.table.view import (
    FileSlice,
    data_files,
    each_slice,
    file_paths,
    load_view,
    slice_table,
    view_of_some,
    with_logs,
)
from holdfast.timeline.timeline import load_timeline

T1, T2, T3, T4 = (InstantTime(f"2024010100000000{n}") for n in range(1, 5))


class Builder:
    """A table made of names only."""

    def __init__(self):
        self.store = MemoryStore()
        properties = {"name": "t", "type": "COPY_ON_WRITE", "version": "6"}
        named = {f"hoodie.table.{key}": value for key, value in properties.items()}
        self.store.create(PROPERTIES_FILE, render_properties(named, comments=[]))

    def file(self, group, time, partition="p", token="0-0-0"):
        path = f"{partition}/{group}_{token}_{time}.parquet".lstrip("/")
        self.store.create(path, b"")
        return path

    def commit(self, time, *paths, action="commit", replaced=None, previous=None):
        stats = {}
        for path in paths:
            partition, _, name = path.rpartition("/")
            stats.setdefault(partition, []).append(
                WriteStat(
                    file_id=name.split("_")[0],
                    path=path,
                    partition_path=partition,
                    prev_commit=(previous or {}).get(path, "null"),
                )
            )
        extra = {"partition_to_replace_file_ids": replaced} if replaced is not None else {}
        self.store.create(f".hoodie/{time}.{action}", encode_commit(CommitMetadata(stats, **extra)))
        return self

    def view(self):
        return load_view(self.store, load_timeline(self.store))

    def latest(self, as_of=None):
        return self.view().latest(as_of)["base"].to_pylist()


@pytest.fixture
def table():
    return Builder()


def test_the_newest_committed_version_of_each_group_is_visible(table):
    a1, a2, b1 = table.file("a", T1), table.file("a", T2), table.file("b", T1)
    table.commit(T1, a1, b1).commit(T2, a2)

    assert table.latest() == [a2, b1]
    assert table.latest(as_of=T1) == [a1, b1]


def test_files_of_unfinished_and_unknown_instants_are_not_visible(table):
    a1 = table.file("a", T1)
    table.file("a", T2)
    table.file("c", T3)
    table.commit(T1, a1)
    table.store.create(f".hoodie/{T2}.inflight", b"")

    assert table.latest() == [a1]


def test_files_older_than_the_active_timeline_were_committed_and_archived(table):
    old, new = table.file("a", T1), table.file("b", T3)
    table.commit(T3, new)

    assert table.latest() == [old, new]


def test_a_replaced_group_is_hidden_from_its_replacement_on(table):
    a1, b2 = table.file("a", T1), table.file("b", T2)
    table.commit(T1, a1).commit(T2, b2, action="replacecommit", replaced={"p": ["a"]})

    assert table.latest() == [b2]
    assert table.latest(as_of=T1) == [a1]


def test_the_root_is_a_partition_too(table):
    a1, a2 = table.file("a", T1, partition=""), table.file("a", T2, partition="")
    table.commit(T1, a1).commit(T2, a2, action="replacecommit", replaced={"": ["zzz"]})

    assert table.latest() == [a2]


def test_groups_whose_ids_begin_alike_are_told_apart(table):
    files = [table.file(group, T1) for group in ("a", "a-0", "a-00", "ab")]
    table.commit(T1, *files)

    assert table.latest() == sorted(files)


def test_instants_to_the_second_count_as_the_end_of_it(table):
    second = InstantTime("20240101000000")
    a1 = table.file("a", T1)
    a2 = table.file("a", second)
    table.commit(T1, a1).commit(second, a2)

    assert table.latest() == [a2]


def test_a_pending_write_older_than_the_first_commit_is_not_visible(table):
    table.file("a", T1)
    table.store.create(f".hoodie/{T1}.inflight", b"")
    b2 = table.file("b", T2)
    table.commit(T2, b2)

    assert table.latest() == [b2]


def test_before_the_first_commit_there_is_nothing(table):
    table.file("a", T1)

    assert table.latest() == []
    table.commit(T2, table.file("b", T2))
    assert table.latest(as_of=InstantTime("20230101000000000")) == []


def test_log_files_and_strangers_are_not_base_files(table):
    a1 = table.file("a", T1)
    table.commit(T1, a1)
    for name in (".a_20240101000000001.log.1_0-0-0", "readme.txt", ".a_0-0-0_1.parquet.crc", "x.parquet"):
        table.store.create(f"p/{name}", b"")
    table.store.create(f".hoodie/metadata/files/m_0-0-0_{T1}.parquet", b"")

    assert table.latest() == [a1]


def test_two_files_of_one_version_are_damage(table):
    table.commit(T1, table.file("a", T1), table.file("a", T1, token="1-1-1"))

    with pytest.raises(TableDamaged, match="two files of one instant"):
        table.latest()


def test_a_file_that_a_commit_names_and_nobody_has_is_damage(table):
    a1 = table.file("a", T1)
    table.commit(T1, a1).commit(T2, f"p/a_0-0-0_{T2}.parquet")

    with pytest.raises(TableDamaged, match=f"a_0-0-0_{T2}"):
        table.latest()
    assert table.latest(as_of=T1) == [a1]


def test_a_snapshot_that_a_clean_removed_has_expired(table):
    a2 = table.file("a", T2)
    table.commit(T1, f"p/a_0-0-0_{T1}.parquet").commit(T2, a2)
    table.store.create(f".hoodie/{T3}.clean", b"x")

    assert table.latest() == [a2]
    with pytest.raises(SnapshotExpired, match=T3):
        table.latest(as_of=T1)


def test_a_version_of_an_archived_commit_that_a_clean_removed_has_expired(table):
    """The commit that wrote it is archived; the one that replaced it says what it replaced."""
    b2, a3 = table.file("b", T2), table.file("a", T3)
    table.commit(T2, b2).commit(T3, a3, previous={a3: T1})
    table.store.create(f".hoodie/{T4}.clean", b"x")

    assert table.latest() == [a3, b2]
    with pytest.raises(SnapshotExpired, match=T4):
        table.latest(as_of=T2)


def test_a_replaced_group_that_a_clean_removed_has_expired(table):
    b2, c3 = table.file("b", T2), table.file("c", T3)
    table.commit(T2, b2).commit(T3, c3, action="replacecommit", replaced={"p": ["gone"]})
    table.store.create(f".hoodie/{T4}.clean", b"x")

    with pytest.raises(SnapshotExpired):
        table.latest(as_of=T2)


def test_nothing_older_than_the_active_timeline_is_trusted_after_a_clean(table):
    table.file("a", T1)
    table.commit(T2, table.file("b", T2))
    table.store.create(f".hoodie/{T3}.clean", b"x")

    with pytest.raises(SnapshotExpired):
        table.latest(as_of=T1)


def test_a_hundred_thousand_files_need_no_object_each(table):
    """The view is columns: its memory is that of the paths, not of objects."""
    paths = [f"p{n % 100:03d}/{n:08d}-0_0-0-0_{T1}.parquet" for n in range(20_000)]
    for path in paths:
        table.store.create(path, b"")
    table.commit(T1, *paths)

    view = table.view()

    assert isinstance(view.slices, pa.Table)
    assert view.slices.nbytes < 400 * len(paths)
    assert view.latest().num_rows == len(paths)


def test_a_view_of_some_partitions_knows_what_the_whole_one_knows_of_them(table):
    """Files of archived commits, of writes that failed and of groups that were replaced among them."""
    archived, a2, a3 = table.file("a", T1, "p"), table.file("a", T2, "p"), table.file("a", T3, "p")
    b2, c2, other = table.file("b", T2, "p"), table.file("c", T2, "p/q"), table.file("d", T2, "q")
    table.file("e", T3, "p", token="9-9-9")
    table.commit(T2, a2, b2, c2, other).commit(T3, a3, previous={a3: T2})
    table.commit(T4, action="replacecommit", replaced={"p": ["b"]})
    listed = pa.array([path for path in table.store.paths("p") if "/q/" not in path], pa.string())

    some = view_of_some(table.store, load_timeline(table.store), listed, ["p"])

    whole = table.view().slices
    assert some.slices == whole.filter(pa.compute.equal(whole["partition"], "p"))
    assert some.slices["base"].to_pylist() == [archived, a2, a3, b2]
    assert some.replaced == {"p/b": T4}


def test_a_view_of_some_partitions_does_not_read_commits_that_no_file_of_theirs_is_from(table):
    a1, b2 = table.file("a", T1, "p"), table.file("b", T2, "q")
    table.commit(T1, a1).commit(T2, b2)
    table.store.put(f".hoodie/{T2}.commit", b"unreadable")

    some = view_of_some(table.store, load_timeline(table.store), pa.array([a1]), ["p"])

    assert some.slices["base"].to_pylist() == [a1]


def test_a_slice_is_a_base_file_with_its_logs_or_logs_alone(table):
    """Slices stay columns; each is a value where one is handled at a time."""
    a1, b1 = table.file("a", T1, "p"), table.file("b", T1, "p")
    log_a, log_c = f"p/.a_{T1}.log.1_0-1-0", f"p/.c_{T2}.log.1_0-1-0"
    for log in (log_a, log_c, f"p/.d_{T4}.log.1_0-1-0"):  # No commit has written the last one.
        table.store.create(log, b"blocks")
    table.commit(T1, a1, b1).commit(T2)
    view = table.view()

    slices = with_logs(view, compactions=())

    assert list(each_slice(slices)) == [
        FileSlice("p", "a", T1, a1, 0, (log_a,)),
        FileSlice("p", "b", T1, b1, 0),
        FileSlice("p", "c", T2, None, None, (log_c,)),
    ]
    assert slice_table(list(each_slice(slices))) == slices.set_column(5, "previous", pa.nulls(3, pa.string()))
    paths, rows = data_files(slices)
    assert (paths.to_pylist(), rows.tolist()) == ([a1, b1, log_a, log_c], [0, 1, 0, 2])
    assert file_paths(view.slices).to_pylist() == [a1, b1]
    assert view.latest() == slices
    assert view.latest(base_only=True) == view.slices


@pytest.mark.parametrize("seed", range(40))
def test_the_newest_slices_have_the_files_that_hudi_reads(seed):
    """Against a plain account of a table, through every kind of write, compaction and replacement."""
    chance = random.Random(seed)
    hudi = HudiTable()
    groups = [(partition, f"{name}-0") for partition in ("p", "q") for name in "abc"]
    hudi.deltacommit(base=groups[:4])
    unused = groups[4:]  # The id of a group that was replaced is never used again.
    moments = []
    for _ in range(12):
        live = [group for group in groups if group in hudi.groups]
        free = [group for group in live if not hudi.is_claimed(group)]
        some = chance.sample(live, min(len(live), 2))
        match chance.randrange(6):
            case 0 if unused:
                new = [unused.pop()]
                hudi.deltacommit(**{chance.choice(["base", "logs"]): new}, finish=chance.random() < 0.8)
            case 1 if free:
                hudi.schedule_compaction(free[:2], of_logs=chance.random() < 0.3)
            case 2 if hudi.pending:
                hudi.finish(min(hudi.pending))
            case 3 if free and chance.random() < 0.3:
                hudi.replace(free[:1])
            case _:
                hudi.deltacommit(logs=some, cdc=chance.random() < 0.2, finish=chance.random() < 0.8)
        view = load_view(hudi.world.store, load_timeline(hudi.world.store))

        found = file_paths(view.latest()).to_pylist()

        assert set(found) == hudi.snapshot()
        assert len(found) == len(set(found))
        if not hudi.pending:  # A compaction that is finished later is part of the moments after its plan.
            moments.append((view.timeline.last_commit.time, set(found)))
    for time, then in moments[-4:]:
        bases = set(view.latest(time)["base"].drop_null().to_pylist())
        assert bases == {path for path in then if path.endswith(".parquet")}


@pytest.mark.parametrize("version", [1, 9, 10, 42, 123, 1999, 2000, 2001, 12345])
def test_a_log_file_of_ours_whose_write_is_no_commit_is_of_no_slice(table, version):
    """Its name tells; of log files of other programs only the blocks do."""
    base = table.file("a", T1, "p")
    table.commit(T1, base)

    def log(instant):
        name = LogFileName.of_write("a", T1, version, attempt=7, instant=instant)
        table.store.create(f"p/{name}", b"blocks")
        return f"p/{name}"

    counted, _, foreign = log(T1), log(T3), f"p/.a_{T1}.log.{version}_0-1-1"
    table.store.create(foreign, b"blocks")

    (slice_,) = each_slice(table.view().latest())

    assert set(slice_.logs) == {counted, foreign}
