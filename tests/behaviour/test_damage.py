"""Damaged files are named in the error; wrong rows are never returned."""

import random

import pytest

import holdfast
from harness.world import rows
from holdfast.errors import TableDamaged, TableNotFound


@pytest.fixture
def table(tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    table.insert(rows("a", "b", "c"))
    return table


def _only(tmp_path, pattern):
    (found,) = tmp_path.glob(pattern)
    return found


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"hoodie.table.name=x\n"], ids=["empty", "garbage", "cut"]
)
def test_damaged_properties_are_named(table, tmp_path, content):
    (tmp_path / ".hoodie/hoodie.properties").write_bytes(content)

    with pytest.raises(TableDamaged, match=r"hoodie\.properties"):
        holdfast.open_table(str(tmp_path))


def test_properties_with_a_wrong_checksum_are_damaged(table, tmp_path):
    path = tmp_path / ".hoodie/hoodie.properties"
    path.write_bytes(path.read_bytes().replace(b"hoodie.table.name=trips", b"hoodie.table.name=trapz"))

    with pytest.raises(TableDamaged, match="checksum"):
        holdfast.open_table(str(tmp_path))


def test_an_empty_folder_is_not_a_table(tmp_path):
    with pytest.raises(TableNotFound, match="create the table first"):
        holdfast.open_table(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"partitionToWriteStats": 7}'])
def test_a_damaged_commit_is_named_by_readers_and_writers(table, tmp_path, content):
    commit = _only(tmp_path, ".hoodie/*.commit")
    commit.write_bytes(content)

    with pytest.raises(TableDamaged, match=commit.name):
        table.to_arrow()
    with pytest.raises(TableDamaged, match=commit.name):
        table.insert(rows("d"))


def test_a_damaged_ledger_entry_is_named_and_nothing_is_written(table, tmp_path):
    entry = tmp_path / ".hoodie/.holdfast/ledger/00000000000000000002"
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)
    files = sorted(tmp_path.rglob("*.parquet"))

    with pytest.raises(TableDamaged, match=entry.name):
        holdfast.open_table(str(tmp_path)).insert(rows("d"))

    assert sorted(tmp_path.rglob("*.parquet")) == files


def test_a_ledger_with_a_foreign_entry_is_damaged(table, tmp_path):
    ledger = tmp_path / ".hoodie/.holdfast/ledger"
    (ledger / "00000000000000000002").write_bytes((ledger / "00000000000000000001").read_bytes())

    with pytest.raises(TableDamaged, match="does not follow"):
        holdfast.open_table(str(tmp_path)).roll_back_failed_writes()


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_data_file_is_named(table, tmp_path, keep):
    file = sorted(tmp_path.glob("city=paris/*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:keep])

    with pytest.raises(TableDamaged, match=file.name):
        table.to_arrow()


def test_a_missing_data_file_is_never_skipped(table, tmp_path):
    """The listing no longer shows the file; the commit still names it."""
    file = sorted(tmp_path.glob("city=paris/*.parquet"))[0]
    file.unlink()

    with pytest.raises(TableDamaged, match=file.name):
        table.to_arrow()


def test_a_file_that_its_commit_does_not_name_is_not_read(table, tmp_path):
    """Left by a task that outlived its write: a second file of a group, or a group of its own."""
    before = table.to_arrow()
    file = sorted(tmp_path.glob("city=paris/*.parquet"))[0]
    file_id, token, instant = file.name.split("_")
    file.with_name(f"{file_id}_9-9-9_{instant}").write_bytes(file.read_bytes())
    file.with_name(f"another-0_{token}_{instant}").write_bytes(file.read_bytes())

    assert table.to_arrow() == before


def test_no_flipped_bit_in_a_data_file_gives_wrong_rows(table, tmp_path):
    file = sorted(tmp_path.glob("city=paris/*.parquet"))[0]
    whole = file.read_bytes()
    expected = table.to_arrow()
    chance = random.Random(5)
    noticed = 0
    for _ in range(400):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        try:
            assert table.to_arrow() == expected
        except TableDamaged:
            noticed += 1
    assert noticed > 20
