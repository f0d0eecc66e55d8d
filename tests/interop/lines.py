"""The lines of Apache Hudi that take part; as a program, it fetches their jars."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.maven import JARS, CannotBeHad, fetched

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "interop"
MEGABYTES_NEEDED = 1500
_NEEDS = (
    "needs Maven for Hudi's bundles (200 MB, once), 1.5 GB of disk, 4 GB of memory "
    "and about eight minutes; INTEROP=short about three"
)


@dataclass(frozen=True)
class Line:
    name: str
    artifact: str
    version: str
    environment: str
    """The lock in `tests/matrix` with the PySpark that the bundle is for."""
    zone: str
    """Where both engines are while they talk, unless a check takes them elsewhere."""
    timeline_zone: str
    """Whose clock the tables go by, `LOCAL` or `UTC`."""
    last_instant: str
    """The field in which its generator of instants remembers the last one."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What every write needs to keep a table at version 6."""

    @property
    def jar(self) -> Path:
        return JARS / f"{self.artifact}-{self.version}.jar"

    @property
    def log(self) -> Path:
        """What the JVM says besides."""
        return PLACE / f"{self.version}.log"

    @property
    def tables(self) -> Path:
        """The tables of the last run."""
        return PLACE / "tables" / self.version

    @property
    def python(self) -> Path:
        return ROOT / ".venvs" / self.environment / "bin" / "python"


LINES = {
    line.name: line
    for line in (
        Line("0.15", "hudi-spark3.5-bundle_2.12", "0.15.0", "oldest", "America/New_York", "LOCAL",
            "lastInstantTime",
        ),
        Line(
            "1.x", "hudi-spark3.5-bundle_2.12", "1.2.0", "oldest", "Asia/Kolkata", "UTC",
            "LAST_INSTANT_TIME",
            {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"},
        ),
    )
}  # fmt: skip

NEWER = {
    "8": Line("8", "hudi-spark3.5-bundle_2.12", "1.0.2", "oldest", "UTC", "LOCAL", "LAST_INSTANT_TIME"),
    "9": Line("9", "hudi-spark3.5-bundle_2.12", "1.2.0", "oldest", "UTC", "LOCAL", "LAST_INSTANT_TIME"),
}
"""By the version of the tables that each writes as it comes."""


def fetch(line: Line) -> None:
    """Put the line's bundle into the cache, by Maven; it stays there."""
    fetched([f"org.apache.hudi:{line.artifact}:{line.version}"], megabytes=MEGABYTES_NEEDED)


def main() -> int:
    sys.stdout.write(f"{_NEEDS}\n")
    try:
        for line in (*LINES.values(), *NEWER.values()):
            fetch(line)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
