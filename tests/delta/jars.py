"""Fetch Delta Lake for the PySpark of `requirements.lock`, and say where its jars are."""

import sys

from bench.maven import CannotBeHad, fetched

PACKAGES = ["io.delta:delta-spark_2.13:4.0.0", "io.delta:delta-storage:4.0.0"]


def main() -> int:
    try:
        jars = fetched(PACKAGES, megabytes=50)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 1
    sys.stdout.write(",".join(map(str, jars)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
