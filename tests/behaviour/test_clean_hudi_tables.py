"""Cleaning merge-on-read tables that Apache Hudi wrote: hudi-rs reads the same rows before and after."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.cli.main import cli
from holdfast.format.commits import CommitMetadata, WriteStat, encode_commit
from holdfast.model.names import is_data_file, parse_base_file

TABLES = (
    "mor_avro_v6_trips_8i1u",
    "mor_parquet_v6_complexkeygen_hivestyle",
    "mor_parquet_v6_empty",
    "mor_parquet_v6_nonpartitioned",
    "mor_parquet_v6_simplekeygen_hivestyle_no_metafields",
    "mor_parquet_v6_simplekeygen_nonhivestyle",
    "mor_parquet_v6_simplekeygen_nonhivestyle_overwritetable",
)
WITH_LOGS = (*TABLES[:2], TABLES[3], TABLES[5])
OVERWRITTEN = "mor_parquet_v6_simplekeygen_nonhivestyle_overwritetable"
POLICIES = {
    "commits": {"hoodie.clean.commits.retained": "1"},
    "versions": {"hoodie.clean.fileversions.retained": "1"},
    "hours": {"hoodie.clean.hours.retained": "1"},
}


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if is_data_file(path.name)}


def rows(folder):
    return sorted(map(repr, hudi_snapshot(folder).to_pylist()))


def compact(folder, time="20990101000000000"):
    """Merge each slice that has log files, as Hudi's compaction does; the files it supersedes."""
    merged = hudi_snapshot(folder)
    stats, superseded = {}, set()
    for base in sorted(folder.rglob("*.parquet")):
        name = parse_base_file(base.name)
        logs = {
            path
            for path in base.parent.iterdir()
            if path.name.startswith(f".{name.file_id}_{name.instant}.log")
        }
        if not logs:
            continue
        partition = str(base.parent.relative_to(folder)).removeprefix(".")
        schema = pq.read_schema(base)
        keys = pa.array(pq.read_table(base)["_hoodie_record_key"].to_pylist())
        mine = (
            merged.filter(pa.compute.is_in(merged["_hoodie_record_key"], keys))
            .select(schema.names)
            .cast(schema)
        )
        target = base.with_name(f"{name.file_id}_0-9-9_{time}.parquet")
        pq.write_table(mine, target)
        stat = WriteStat(
            name.file_id, path=str(target.relative_to(folder)), prev_commit=name.instant,
            partition_path=partition, file_size_in_bytes=target.stat().st_size, num_writes=len(mine),
        )  # fmt: skip
        stats.setdefault(partition, []).append(stat)
        superseded |= {str(path.relative_to(folder)) for path in (base, *logs)}
    content = encode_commit(CommitMetadata(stats, compacted=True, operation_type="COMPACT"))
    for suffix, written in (("compaction.requested", b""), ("compaction.inflight", b""), ("commit", content)):
        (folder / ".hoodie" / f"{time}.{suffix}").write_bytes(written)
    return superseded


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("policy", POLICIES)
def test_hudi_reads_the_same_rows_after_a_clean(name, policy, hudi_fixture):
    folder = hudi_fixture(name)
    for instant in (folder / ".hoodie").iterdir():  # As if they were not unpacked just now.
        os.utime(instant, (0, 0))
    before, there = rows(folder), files(folder)
    table = holdfast.open_table(str(folder))
    plan = table.plan_clean(POLICIES[policy])

    report = table.clean(POLICIES[policy])

    assert rows(folder) == before
    gone = there - files(folder)
    assert gone == {file.path for file in plan.doomed} == set(report.deleted if report else ())
    # Only the table that was overwritten has files that no query reads.
    assert len(gone) == (4 if name == OVERWRITTEN and policy != "commits" else 0)
    assert {file.path for file in plan.kept} == there - gone


@pytest.mark.parametrize("name", WITH_LOGS)
def test_what_a_compaction_merged_goes_as_a_whole(name, hudi_fixture):
    folder = hudi_fixture(name)
    superseded = compact(folder)
    before = rows(folder)
    assert any(".log." in path for path in superseded)
    expected = hudi_fixture.expected(name)["snapshot"]
    assert sorted(hudi_snapshot(folder)["_hoodie_record_key"].to_pylist()) == sorted(
        row["_hoodie_record_key"] for row in expected
    )

    report = holdfast.open_table(str(folder)).clean(POLICIES["versions"])

    assert set(report.deleted) == superseded
    assert rows(folder) == before


def test_the_command_line_cleans_and_explains(hudi_fixture):
    folder = hudi_fixture(OVERWRITTEN)
    before = rows(folder)
    arguments = ["cleans", "run", str(folder), "--hoodie-conf", "hoodie.clean.fileversions.retained=1"]

    result = CliRunner().invoke(cli, [*arguments, "--explain", "--json"], catch_exceptions=False)

    document = json.loads(result.stdout)
    doomed = document["planned"]["doomed"]
    assert result.exit_code == 0
    assert {file["reason"] for file in doomed} == {"replaced"}
    assert any(".log." in file["path"] and file["size"] > 0 for file in doomed)
    assert sorted(document["cleaned"]["deleted"]) == sorted(file["path"] for file in doomed)
    assert rows(folder) == before
