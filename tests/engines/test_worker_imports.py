"""What Spark's Python workers have to import before they write a file."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

# Workers of the session that other tests share have imported for those, too.
_PROGRAM = """
import json, sys
import pyarrow as pa
import holdfast
from holdfast.engines.spark.session import local_session

spark = local_session("imports", master="local[1]")
table = holdfast.create_table(sys.argv[1], name="t", record_key="id", partition_by="city")
rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long, city string")
table.bulk_insert(rows)
table.upsert(rows)

def imported(batches):
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"module": sorted(sys.modules)})

print(json.dumps([row[0] for row in rows.mapInArrow(imported, "module string").distinct().collect()]))
"""


def test_workers_import_what_writes_files_and_not_the_half_of_the_driver(tmp_path):
    child = [sys.executable, "-c", _PROGRAM, str(tmp_path / "t")]

    imported = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)

    assert {"holdfast.writes.task", "holdfast.writes.merge_task"} <= set(imported)
    heavy = {"holdfast.engines.spark.writer", "holdfast.engines.spark.reader", "pyarrow.dataset"}
    assert not heavy & set(imported)
