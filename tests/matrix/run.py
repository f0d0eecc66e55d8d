"""Run the Spark tests on every supported PySpark, and say in a few lines how each fared.

The lowest version of every dependency is tried too, without Spark and with it.
`make test-matrix` makes the environments, one for each lock in this folder.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MERGES = (
    "a_table_written_by_spark_is_the_one_written_without_it",  # Every operation with every index.
    "a_key_that_is_in_two_partitions_is_found_in_both",
    "missing_columns_new_ones_and_wider_types_are_taken_in",
    "keys_and_partitions_of_every_type_are_spelled_as_in_tasks",
    "keys_of_a_crowded_partition_are_located_by_a_join",
    "with_a_global_index_only_partitions_that_share_a_key_are_joined",
    "new_rows_of_one_partition_are_spread_over_many_files",
)
CORE = (
    "tests/behaviour/test_spark_writes.py",
    *(f"tests/behaviour/test_spark_merges.py::test_{name}" for name in MERGES),
    "tests/read",
    "tests/engines/test_footers.py",
    "tests/engines/test_spark_reads.py",
    "tests/engines/test_source.py",
    "tests/behaviour/test_live_rows.py",
)
SOURCE = ("tests/engines/test_source.py",)
"""What Spark changes about Python data sources from one release to the next."""
SESSION = (
    "--conf spark.sql.codegen.wholeStage=false --driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"
)
"""Over a handful of rows most of the time goes into compiling queries, and then into compiling Spark."""
CONNECT = ("tests/engines/test_connect.py",)
SERVICE = (
    "tests/format",
    "tests/storage",
    "tests/push",
    "tests/server",
    "tests/behaviour/test_merging.py",
    "tests/behaviour/test_hudi_tables.py",
    "tests/behaviour/test_links.py",
    "tests/services/test_clean.py",
    "tests/services/test_restore.py",
)
"""What most depends on Arrow, msgspec, DuckDB, sqlglot and the HTTP server."""
SPARK, WITHOUT_SPARK = "in process", "no Spark"
RUNS = (
    ("lowest", WITHOUT_SPARK, SERVICE),
    ("lowest", SPARK, ("tests/behaviour/test_spark_writes.py", "tests/engines/test_spark_reads.py")),
    ("oldest", SPARK, CORE),
    ("newest", SPARK, CORE),
    ("spark41", SPARK, SOURCE),
    ("spark42", SPARK, SOURCE),
    ("oldest", "Connect", CONNECT),
    ("default", "Connect", CONNECT),  # `make test` has run it in process.
    ("newest", "Connect", CONNECT),
)
NOTHING_RAN = 5
"""What pytest exits with where a whole file is skipped: right only where PySpark brings no server."""


def main() -> int:
    fared = []
    has_failed = False
    for environment, way, tests in RUNS:
        python = ROOT / ".venvs" / environment / "bin" / "python"
        name = f"{environment:8} PySpark {version(python):6} {way:10}"
        say(f"{name} ...")
        began = time.monotonic()
        kind = "not spark" if way == WITHOUT_SPARK else "spark"
        command = [python, "-m", "pytest", "-m", kind, "-rs", "-p", "no:cacheprovider", *tests]
        session = os.environ | {"PYSPARK_SUBMIT_ARGS": SESSION}
        ran = subprocess.run(command, cwd=ROOT, env=session, capture_output=True, text=True)
        fared.append(f"{name} {time.monotonic() - began:4.0f} s  {outcome(ran.stdout)}")
        may_skip = (environment, way) == ("oldest", "Connect")
        if ran.returncode != 0 and not (may_skip and ran.returncode == NOTHING_RAN):
            has_failed = True
            say(ran.stdout + ran.stderr)
    say("\n".join(["", *fared]))
    return 1 if has_failed else 0


def version(python: Path) -> str:
    command = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def outcome(output: str) -> str:
    """pytest's last line; if nothing ran, also why."""
    lines = output.strip().splitlines() or ["pytest said nothing"]
    if "passed" in lines[-1] or "failed" in lines[-1]:
        return lines[-1]
    return "; ".join([lines[-1], *(line for line in lines if line.startswith("SKIPPED"))])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
