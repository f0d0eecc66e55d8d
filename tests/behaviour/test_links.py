"""A symbolic link inside a table leads no operation to files outside it."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import HoldfastError, TableDamaged

CLEAN = {"hoodie.cleaner.commits.retained": "1"}


def rows(*fares):
    return pa.table({"id": list(range(len(fares))), "city": ["oslo"] * len(fares), "fare": list(fares)})


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "precious.parquet").write_bytes(b"x")
    (folder / "precious").write_bytes(b"x")
    return folder


@pytest.fixture
def table(tmp_path):
    table = holdfast.create_table(str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city")
    for number in range(3):
        table.upsert(rows(number, number), options={"hoodie.clean.automatic": "false"})
    return table


def left(outside):
    return sorted(str(path.relative_to(outside)) for path in outside.rglob("*"))


@pytest.mark.parametrize(
    "link", [".hoodie/metadata", ".hoodie/.temp", ".hoodie/.temp/20200101000000000", "bergen"]
)
def test_nothing_outside_goes_by_any_operation(table, tmp_path, outside, link):
    before = left(outside)
    place = tmp_path / "trips" / link
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        place.rmdir()
    place.symlink_to(outside)

    plan = table.plan_clean(CLEAN)
    table.clean(CLEAN)
    table.roll_back_failed_writes()
    table.repair(table.verify())
    table.undo()

    assert left(outside) == before
    assert not [file for file in plan.doomed if file.path.startswith(link)]


def test_a_partition_that_became_a_link_keeps_what_is_behind_it(table, tmp_path):
    moved, partition = tmp_path / "moved", tmp_path / "trips" / "city=oslo"
    partition.rename(moved)
    partition.symlink_to(moved)
    before = left(moved)

    for attempt in (table.to_arrow, lambda: table.upsert(rows(9))):
        with pytest.raises(TableDamaged, match="a data file is missing"):
            attempt()
    assert table.clean(CLEAN).deleted == ()
    assert left(moved) == before


DIES_WHILE_IT_WRITES = """
import os, sys
import pyarrow as pa
import holdfast
from holdfast.engines.arrow.rows import ArrowRows

merge = ArrowRows.merge

def merge_and_die(self, table, request):
    merge(self, table, request)
    os._exit(9)

ArrowRows.merge = merge_and_die
rows = pa.table({"id": [0, 1], "city": ["oslo"] * 2, "fare": [7, 7]})
holdfast.open_table(sys.argv[1]).upsert(rows)
"""


@pytest.fixture
def pending(table, tmp_path):
    """The instant of a write whose process died with its files written, markers and all."""
    died = subprocess.run([sys.executable, "-c", DIES_WHILE_IT_WRITES, str(tmp_path / "trips")], check=False)
    assert died.returncode == 9
    return table.timeline()[-1].time


@pytest.mark.parametrize("is_copied", [True, False], ids=["with its markers behind it", "with others' files"])
def test_the_markers_of_a_pending_write_may_be_a_link(table, tmp_path, outside, pending, is_copied):
    """A rollback reads the markers, deletes what they announce, and then the markers themselves."""
    markers = tmp_path / "trips" / ".hoodie" / ".temp" / pending
    assert any(files for _, _, files in os.walk(markers))
    if is_copied:
        shutil.copytree(markers, outside, dirs_exist_ok=True)
    shutil.rmtree(markers)
    markers.symlink_to(outside)
    before = left(outside)

    (report,) = table.roll_back_failed_writes()

    assert report.rolled_back == pending
    assert len(report.deleted) == 1, "what no marker announces is found by looking"
    assert not [file for file in (tmp_path / "trips").rglob("*.parquet") if pending in file.name]
    assert left(outside) == before
    table.upsert(rows(9))
    assert table.verify().is_clean
    assert left(outside) == before


def test_the_partition_of_a_pending_write_may_be_a_link(table, tmp_path, outside, pending):
    partition = tmp_path / "trips" / "city=oslo"
    shutil.copytree(partition, outside, dirs_exist_ok=True)
    partition.rename(tmp_path / "moved")
    partition.symlink_to(outside)
    before, moved = left(outside), left(tmp_path / "moved")

    with suppress(HoldfastError):  # Whether it may be called rolled back is another matter.
        table.roll_back_failed_writes()

    assert left(outside) == before
    assert left(tmp_path / "moved") == moved
