"""Delta Lake needs its jars. `make test-delta` says where they are; otherwise nothing is collected."""

import os

JARS = os.environ.get("HOLDFAST_DELTA")
collect_ignore_glob = [] if JARS else ["test_*.py"]
if JARS:
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--jars {JARS} --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
        " --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
        " --conf spark.databricks.delta.snapshotPartitions=2 pyspark-shell"
    )
