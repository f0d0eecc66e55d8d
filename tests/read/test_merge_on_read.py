"""Merge-on-read tables with log files of every kind, ours against hudi-rs where both must agree."""

import base64
import zlib

import numpy as np
import pyarrow as pa
import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from harness.log_writer import (
    EVENT_TIME,
    LATEST,
    SCHEMA,
    LoggedTable,
    command_block,
    data_block,
    delete_block,
    rows_of,
)
from holdfast.errors import TableDamaged, UnsupportedTable
from holdfast.format.compaction_plans import CompactionOperation, CompactionPlan, encode_compaction_plan
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, encode_block
from holdfast.format.rollbacks import RollbackMetadata, encode_rollback_metadata
from holdfast.model.instant import InstantTime

BASE = [(f"k{number}", 10, "base") for number in range(10)]


@pytest.fixture(params=[EVENT_TIME, LATEST], ids=["event time", "latest write"])
def table(request, tmp_path):
    return LoggedTable(tmp_path / "t", BASE, payload=request.param)


@pytest.fixture
def ordered(tmp_path):
    """A table in which order decides."""
    return LoggedTable(tmp_path / "t", BASE)


def changed(*rows, without=()):
    """The base rows, but for these keys."""
    gone = {row[0] for row in rows} | set(without)
    return {row for row in BASE if row[0] not in gone} | set(rows)


def check(table, expected):
    """Both readers see these rows, and of them as many are counted."""
    assert table.read() == expected
    assert rows_of(hudi_snapshot(table.folder)) == expected


@pytest.mark.parametrize("is_avro", [False, True], ids=["parquet", "avro"])
def test_rows_of_a_data_block_replace_those_of_the_base_file(table, is_avro):
    rows = [("k1", 11, "new"), ("k11", 11, "added")]
    table.log(data_block(table.time(1), rows, is_avro=is_avro))

    check(table, changed(*rows))
    assert rows_of(table.opened.to_arrow(read_optimized=True)) == set(BASE)


def test_formats_may_be_mixed_in_one_slice_and_in_one_file(table):
    one, two, three = table.time(1), table.time(2), table.time(3)
    table.log(data_block(one, [("k1", 11, "a")], is_avro=True))
    table.log(data_block(two, [("k1", 12, "b"), ("k2", 12, "b")]), delete_block(two, {"k3": None}))
    table.log(data_block(three, [("k2", 13, "c")], is_avro=True))

    check(table, changed(("k1", 12, "b"), ("k2", 13, "c"), without=["k3"]))


def test_a_delete_block_takes_keys_away(table):
    table.log(delete_block(table.time(1), {"k1": None, "nobody": None}))
    table.log(delete_block(table.time(2), {"k2": 11, "noone": 11}))

    check(table, changed(without=["k1", "k2"]))


def test_a_key_may_come_back_after_its_delete(table):
    table.log(delete_block(table.time(1), {"k1": None}))
    table.log(data_block(table.time(2), [("k1", 12, "back")]))

    check(table, changed(("k1", 12, "back")))


def test_an_older_row_or_delete_loses_where_order_decides(ordered):
    one = ordered.time(1)
    ordered.log(
        data_block(one, [("k1", 9, "late"), ("k2", 10, "same")]), delete_block(one, {"k3": 9, "k4": 10})
    )
    ordered.log(data_block(ordered.time(2), [("k2", 9, "late")]))

    check(ordered, changed(("k2", 10, "same"), without=["k4"]))


def test_a_later_row_wins_whatever_its_order_where_the_latest_write_does(tmp_path):
    table = LoggedTable(tmp_path / "t", BASE, payload=LATEST)
    one = table.time(1)
    table.log(data_block(one, [("k1", 9, "late")]), delete_block(one, {"k3": 9}))
    table.log(data_block(table.time(2), [("k1", 8, "latest")]))

    assert table.read() == changed(("k1", 8, "latest"), without=["k3"])


def test_a_row_that_comes_back_with_a_lower_order_than_the_base_row_loses_against_it(ordered):
    """All readers give the old row back: research has it as the confirmed resurrection."""
    ordered.log(delete_block(ordered.time(1), {"k1": None}))
    ordered.log(data_block(ordered.time(2), [("k1", 9, "late")]))

    check(ordered, set(BASE))


def test_null_and_nan_are_the_ends_of_the_order(tmp_path):
    table = LoggedTable(tmp_path / "t", [("k1", None, "base"), ("k2", 10, "base")])
    table.log(data_block(table.time(1), [("k1", None, "new"), ("k2", None, "new")]))

    assert table.read() == {("k1", None, "new"), ("k2", 10, "base")}


def test_of_rows_of_one_block_with_one_key_the_last_or_the_greatest_counts(table):
    table.log(data_block(table.time(1), [("k1", 12, "a"), ("k1", 11, "b"), ("k1", 12, "c"), ("k1", 11, "d")]))

    expected = ("k1", 12, "c") if table.payload == EVENT_TIME else ("k1", 11, "d")
    assert table.read() == changed(expected)


# Which blocks count.


def test_a_rolled_back_log_with_its_command_block_is_not_read(table):
    one, two = table.time(1), table.time(2)
    table.log(data_block(one, [("k1", 11, "failed")]), state=None)
    table.log(command_block(two, one), state=None)
    table.log(data_block(table.time(3), [("k2", 12, "new")]))

    check(table, changed(("k2", 12, "new")))


def test_a_command_takes_back_only_what_stands_before_it(table):
    one = table.time(1)
    table.log(
        data_block(one, [("k1", 11, "failed")]),
        command_block(table.time(2), one),
        data_block(table.time(3), [("k2", 12, "new")]),
        instant=table.time(3),
    )
    table.log(data_block(one, [("k3", 12, "again")]))

    assert table.read() == changed(("k2", 12, "new"), ("k3", 12, "again"))


@pytest.mark.parametrize("state", ["requested", "inflight", None])
def test_a_log_whose_write_did_not_finish_is_not_read(table, state):
    table.log(data_block(table.time(1), [("k1", 11, "pending")]), state=state)
    table.log(data_block(table.time(2), [("k2", 12, "new")]))

    check(table, changed(("k2", 12, "new")))


def test_a_truncated_log_of_a_failed_write_is_passed_over(table):
    failed = data_block(table.time(1), [("k1", 11, "failed")])
    for cut in (0, 3, 20, 70, len(encode_block(failed)) - 1):
        table.log(failed, state="inflight", cut=cut)
    table.log(data_block(table.time(9), [("k2", 12, "new")]))

    check(table, changed(("k2", 12, "new")))


def test_a_torn_end_of_another_write_is_passed_over_and_what_follows_is_read(table):
    """Old releases of Hudi appended to one file."""
    torn = encode_block(data_block(table.time(1), [("k1", 11, "failed")]))[:-9]
    path = table.log(data_block(table.time(2), [("k2", 12, "new")]))
    path.write_bytes(torn + path.read_bytes())

    check(table, changed(("k2", 12, "new")))


@pytest.mark.parametrize("cut", [0, 3, 20, 70, -1])
def test_a_truncated_log_of_a_commit_is_damage_and_names_file_and_offset(table, cut):
    path = table.log(data_block(table.time(1), [("k1", 11, "lost")]))
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])

    with pytest.raises(TableDamaged, match="shorter than its commit says") as caught:
        table.read()

    assert caught.value.facts["file"] == path.name
    assert caught.value.facts["offset"] == len(whole[:cut])


def test_a_byte_that_changed_in_a_log_of_a_commit_is_damage_or_changes_nothing_read(table):
    """But for keys in delete blocks, for which the format has no checksum."""
    path = table.log(data_block(table.time(1), [("k1", 11, "one"), ("k2", 11, "two")]))
    expected = changed(("k1", 11, "one"), ("k2", 11, "two"))
    whole = path.read_bytes()
    chance = np.random.default_rng(1)
    damaged = 0
    for at in chance.choice(len(whole), 600, replace=False):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(chance.integers(8))]) + whole[at + 1 :])
        try:
            assert table.read() == expected, f"a wrong byte at {at} gives wrong rows"
        except (TableDamaged, UnsupportedTable):
            damaged += 1
    path.write_bytes(whole)

    assert damaged > 200
    assert table.read() == expected


def test_a_log_of_a_commit_that_is_gone_is_damage(table):
    path = table.log(data_block(table.time(1), [("k1", 11, "lost")]))
    path.unlink()

    with pytest.raises(TableDamaged, match="missing") as caught:
        table.read()

    assert caught.value.facts["file"] == path.name
    assert rows_of(table.opened.to_arrow(read_optimized=True)) == set(BASE)


def test_a_log_compaction_stands_for_what_it_compacted(table):
    """The compacted block comes after a younger one, and applies before it."""
    one, two, three, four = map(table.time, range(1, 5))
    table.log(data_block(one, [("k1", 11, "a"), ("k2", 11, "a")]))
    table.log(data_block(two, [("k2", 12, "b")]))
    table.log(data_block(three, [("k1", 13, "c")]))
    times = {BlockHeader.COMPACTED_BLOCK_TIMES: f"{one},{two}".encode()}
    table.log(data_block(four, [("k1", 11, "a"), ("k2", 12, "b")], header=times), state=None)
    table.instant(four, "logcompaction", operation="LOG_COMPACT")

    check(table, changed(("k1", 13, "c"), ("k2", 12, "b")))
    assert table.read(as_of=two) == changed(("k1", 11, "a"), ("k2", 12, "b"))


def test_a_log_compaction_of_log_compactions_applies_where_the_first_rows_stood(tmp_path):
    table = LoggedTable(tmp_path / "t", BASE, payload=LATEST)
    one, two, three, four, five = map(table.time, range(1, 6))
    table.log(data_block(one, [("k1", 11, "a")]))
    table.log(data_block(two, [("k2", 12, "b")]))
    table.log(data_block(three, [("k1", 1, "c"), ("k2", 1, "c")]))
    for time, of in ((four, [one]), (five, [four, two])):
        header = {BlockHeader.COMPACTED_BLOCK_TIMES: ",".join(of).encode()}
        rows = [("k1", 11, "a")] if time == four else [("k1", 11, "a"), ("k2", 12, "b")]
        table.log(data_block(time, rows, header=header), state=None)
        table.instant(time, "logcompaction", operation="LOG_COMPACT")

    assert table.read() == changed(("k1", 1, "c"), ("k2", 1, "c"))


def test_the_logs_of_a_pending_compaction_continue_the_slice_before(table):
    one, two, three = map(table.time, range(1, 4))
    first = table.log(data_block(one, [("k1", 11, "a"), ("k2", 11, "a")]))
    operation = CompactionOperation(table.file_id, "", table.base, table.base_file.name, (first.name,))
    plan = encode_compaction_plan(CompactionPlan((operation,)))
    table.instant(two, "compaction", state="requested", request=plan)
    table.log(data_block(three, [("k2", 12, "b")]), slice_=two)

    assert table.read() == changed(("k1", 11, "a"), ("k2", 12, "b"))
    assert table.read(as_of=one) == changed(("k1", 11, "a"), ("k2", 11, "a"))
    assert [path.rpartition("/")[2] for path in table.opened.files()] == [
        table.base_file.name, first.name, f".{table.file_id}_{two}.log.2_0-2-1",
    ]  # fmt: skip


def test_rows_written_to_a_compaction_that_was_taken_back_are_not_lost_silently(table):
    two = table.time(2)
    log = table.log(data_block(table.time(3), [("k2", 12, "b")]), slice_=two)

    with pytest.raises(TableDamaged, match="no commit and no plan knows") as caught:
        table.read()

    assert caught.value.facts["file"] == log.name


def test_a_file_group_of_logs_alone_is_read(table):
    """Hudi makes them with the index of Flink, or BUCKET."""
    one = table.time(1)
    table.log(data_block(one, [("x", 1, "a"), ("y", 1, "a")]), slice_=one, file_id="other-0")
    table.log(data_block(table.time(2), [("x", 2, "b")]), slice_=one, file_id="other-0")

    check(table, {*BASE, ("x", 2, "b"), ("y", 1, "a")})
    assert table.read(as_of=one) == {*BASE, ("x", 1, "a"), ("y", 1, "a")}
    assert rows_of(table.opened.to_arrow(read_optimized=True)) == set(BASE)


def test_logs_apply_by_their_numbers_not_their_names(table):
    for number in range(1, 13):
        table.log(data_block(table.time(number), [("k1", 20, str(number))]))

    check(table, changed(("k1", 20, "12")))


def test_what_was_archived_counts_and_what_was_rolled_back_does_not(table):
    """Blocks older than the timeline are committed, but for those that a rollback names."""
    archived, failed, rollback = (str(int(table.base) - number) for number in (30, 20, 10))
    table.log(data_block(archived, [("k1", 11, "archived")]), state=None)
    table.log(data_block(failed, [("k2", 11, "failed")]), state=None)
    metadata = RollbackMetadata(InstantTime(rollback), 1, 0, (InstantTime(failed),), {})
    record = table.folder / ".hoodie" / f"{rollback}.rollback"
    record.write_bytes(encode_rollback_metadata(metadata))

    assert table.read() == changed(("k1", 11, "archived"))


# As of.


def test_every_moment_in_a_slice_can_be_read(table):
    for number in range(1, 4):
        time = table.time(number * 10)
        table.log(
            data_block(time, [(f"k{number}", 20, str(number))]), delete_block(time, {f"k{number + 5}": None})
        )

    for number in range(4):
        expected = changed(
            *((f"k{each}", 20, str(each)) for each in range(1, number + 1)),
            without=[f"k{each + 5}" for each in range(1, number + 1)],
        )
        assert table.read(as_of=table.time(number * 10)) == expected
        assert table.read(as_of=table.time(number * 10 + 5)) == expected


def test_changes_are_the_rows_of_logs_by_their_commits(table):
    one, two = table.time(1), table.time(2)
    table.log(data_block(one, [("k1", 11, "a"), ("k2", 11, "a")]))
    table.log(data_block(two, [("k2", 12, "b")]), delete_block(two, {"k3": None}))
    opened = table.opened

    assert rows_of(opened.changes_to_arrow(since=table.base)) == {("k1", 11, "a"), ("k2", 12, "b")}
    assert rows_of(opened.changes_to_arrow(since=one)) == {("k2", 12, "b")}
    assert rows_of(opened.changes_to_arrow(since=table.base, until=one)) == {("k1", 11, "a"), ("k2", 11, "a")}
    assert rows_of(opened.changes_to_arrow(since="0" * 17)) == changed(
        ("k1", 11, "a"), ("k2", 12, "b"), without=["k3"]
    )
    assert opened.changes_to_arrow(since=two).num_rows == 0


def test_a_late_row_in_a_log_is_no_change_where_order_decides(ordered):
    ordered.log(data_block(ordered.time(1), [("k1", 9, "late"), ("k2", 11, "new")]))

    assert rows_of(ordered.opened.changes_to_arrow(since=ordered.base)) == {("k2", 11, "new")}


# Columns and schemas.


def test_columns_are_pruned_to_those_asked_for(ordered):
    ordered.log(data_block(ordered.time(1), [("k1", 9, "late"), ("k2", 11, "new")]))

    found = ordered.opened.to_arrow(columns=["value"])

    assert found.column_names == ["value"]
    assert sorted(found["value"].to_pylist()) == ["base"] * 9 + ["new"]


def test_blocks_and_base_files_of_an_older_schema_are_read_in_the_newest(table):
    wider = SCHEMA.append(pa.field("more", pa.int32())).set(1, pa.field("ts", pa.int64()))
    table.log(data_block(table.time(1), [("k1", 11, "old")], is_avro=True))
    table.log(data_block(table.time(2), [("k2", 12, "new", 7)], schema=wider), state=None)
    table.instant(table.time(2), "deltacommit", schema=wider)

    found = {row["id"]: row["more"] for row in table.opened.to_arrow().to_pylist()}

    assert found == {f"k{number}": 7 if number == 2 else None for number in range(10)}
    assert table.opened.to_arrow(as_of=table.time(1)).column_names == SCHEMA.names


# Positions.


def _footer(base, rows, removed=()):
    def packed(positions):
        steps = np.diff(np.array(positions, dtype=np.int64), prepend=0).astype("<i8")
        return base64.b64encode(zlib.compress(steps.tobytes()))

    return {
        b"holdfast.base": base.encode(),
        b"holdfast.positions": packed(rows),
        b"holdfast.positions.removed": packed(removed),
    }


def test_positions_find_rows_without_their_keys(table):
    """They are believed: here they name other rows than the keys do, and those go."""
    time = table.time(1)
    order = rows_in_base(table)
    table.log(
        data_block(
            time, [("k1", 11, "new")], footer=_footer(table.base, [order.index("k7")], [order.index("k8")])
        ),
        delete_block(time, {"k2": None}),
    )

    values = sorted(table.opened.to_arrow()["id"].to_pylist())
    assert values == ["k0", "k1", "k1", "k2", "k3", "k4", "k5", "k6", "k9"]


def test_positions_in_another_base_file_are_not_believed(table):
    footer = _footer("20200101000000000", [7])
    table.log(data_block(table.time(1), [("k1", 11, "new")], footer=footer))

    check(table, changed(("k1", 11, "new")))


@pytest.mark.parametrize("positions", [[99], [1, 2], [-2]])
def test_positions_that_cannot_be_are_damage(table, positions):
    table.log(data_block(table.time(1), [("k1", 11, "new")], footer=_footer(table.base, positions)))

    with pytest.raises(TableDamaged):
        table.read()


def rows_in_base(table):
    return table.opened.to_arrow(read_optimized=True)["id"].to_pylist()


# What is refused by name.


@pytest.mark.parametrize(
    ("block", "named"),
    [
        (lambda time: LogBlock(BlockType.HFILE_DATA, b"x", {0: time}), "HFILE_DATA"),
        (lambda time: LogBlock(42, b"x", {0: time}), "42"),
        (
            lambda time: LogBlock(BlockType.PARQUET_DATA, b"x", {0: time, BlockHeader.IS_PARTIAL: b"true"}),
            "some of",
        ),
        (lambda time: LogBlock(BlockType.DELETE, b"\0\0\0\1\0\0\0\0", {0: time}), "only Hudi reads"),
    ],
)
def test_blocks_that_cannot_be_read_are_refused_with_file_and_offset(table, block, named):
    before = data_block(table.time(1), [("k1", 11, "a")])
    path = table.log(before, block(table.time(1).encode()))

    with pytest.raises(UnsupportedTable, match=named) as caught:
        table.read()

    assert (caught.value.facts["file"], caught.value.facts["offset"]) == (
        path.name,
        len(encode_block(before)),
    )


def test_what_other_programs_leave_for_changes_is_no_part_of_a_snapshot(table):
    time = table.time(1)
    cdc = LogBlock(BlockType.CDC_DATA, b"x", {0: time.encode()})
    path = table.log(data_block(time, [("k1", 11, "a")]), cdc)
    path.with_name(path.name + ".cdc").write_bytes(b"whatever")

    assert table.read() == changed(("k1", 11, "a"))


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (EVENT_TIME, "org.apache.hudi.common.model.PartialUpdateAvroPayload", "PartialUpdate"),
        ("precombine.field=ts", "precombine.field=ts,value", "several ordering columns"),
        ("precombine.field=ts", "precombine.field=ts.inner", "inside of a struct"),
        ("precombine.field=ts", "precombine.field=absent", "lacks the column"),
    ],
)
def test_tables_that_merge_in_another_way_are_refused_once_they_have_logs(ordered, before, after, named):
    ordered.change_property(before, after)
    assert ordered.read() == set(BASE)
    ordered.log(data_block(ordered.time(1), [("k1", 11, "a")]))

    with pytest.raises(UnsupportedTable, match=named):
        ordered.read()

    assert rows_of(ordered.opened.to_arrow(read_optimized=True)) == set(BASE)


def test_a_copy_on_write_table_has_no_logs_whatever_lies_about(tmp_path):
    table = LoggedTable(tmp_path / "t", BASE)
    table.log(data_block(table.time(1), [("k1", 11, "a")]), state=None)
    table.change_property("MERGE_ON_READ", "COPY_ON_WRITE")

    assert table.read() == set(BASE)
    assert holdfast.open_table(str(table.folder)).files() == [str(table.base_file)]
