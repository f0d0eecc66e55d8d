"""DuckDB over segments that lie in an object store: Arrow opens them, DuckDB opens nothing."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.serving import orders
from holdfast.config.push_schema import DataType
from holdfast.push.queries import wire
from holdfast.push.queries.duck import Runner
from holdfast.push.queries.segment_files import ArrowDatasets, ParquetFiles, remote_source
from holdfast.storage.memory import MemoryStore


@pytest.fixture
def runner():
    store = MemoryStore()
    for name, rows in (("a", orders([1, 2])), ("b", orders([3], city="Bergen"))):
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        store.put(f"orders/{name}.parquet", sink.getvalue().to_pybytes())
    setup = wire.Setup("s3://bucket", {}, [], True, 256 << 20, 1, False)
    return Runner(ArrowDatasets(remote_source(store)), setup)


def ask(runner, sql, files=("a", "b")):
    view = wire.ViewTask(
        "t",
        [
            wire.ColumnTask("id", DataType.LONG, False),
            wire.ColumnTask("city", DataType.STRING, False, "'null'"),
        ],
        list(files),
        [f"orders/{file}.parquet" for file in files],
        True,
    )
    failure, body = runner.run(wire.Task(1, sql, [view], 100, 1 << 20))
    return failure or pa.ipc.open_stream(body).read_all().to_pydict()


def test_rows_and_segment_names_come_from_the_store(runner):
    found = ask(
        runner,
        'SELECT "$segmentName" AS s, sum(id) AS n, max("$value.city") AS c FROM t GROUP BY 1 ORDER BY 1',
    )

    assert found == {"s": ["a", "b"], "n": [3, 3], "c": ["Oslo", "Bergen"]}


def test_a_file_that_is_not_there_is_told_as_a_missing_segment(runner):
    failure = ask(runner, "SELECT count(*) FROM t", files=("a", "gone"))

    assert (failure.code, "segment: gone" in failure.message) == (235, True)


@pytest.mark.parametrize("keep", [0, 50, -10])
def test_a_file_that_is_cut_off_is_named_by_its_segment_and_by_nothing_else(tmp_path, keep):
    (tmp_path / "orders").mkdir()
    for name in ("a", "b"):
        pq.write_table(orders([1, 2]), tmp_path / f"orders/{name}.parquet")
    runner = Runner(
        ParquetFiles(str(tmp_path)), wire.Setup(str(tmp_path), {}, [], False, 256 << 20, 1, False)
    )
    whole = (tmp_path / "orders/b.parquet").read_bytes()
    (tmp_path / "orders/b.parquet").write_bytes(whole[:keep])

    failure = ask(runner, "SELECT count(*) FROM t")

    assert (failure.code, "segment: b" in failure.message) == (235, True)
    assert str(tmp_path) not in failure.message


def test_a_statement_cannot_open_anything_itself(runner):
    for sql in ("SELECT * FROM read_text('/etc/hostname')", "SET threads = 4"):
        assert ask(runner, sql).code in (150, 200)
