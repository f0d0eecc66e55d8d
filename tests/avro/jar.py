"""Fetch Spark's package for Avro, and say where it is."""

import sys

from bench.maven import CannotBeHad, fetched

PACKAGE = "org.apache.spark:spark-avro_2.13:4.0.2"
"""Any release for the minor version of the PySpark in `requirements.lock`."""


def main() -> int:
    try:
        (jar,) = fetched([PACKAGE], megabytes=50)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 1
    sys.stdout.write(f"{jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
