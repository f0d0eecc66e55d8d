"""The lines of Apache Hudi that take part; as a program, it fetches their jars."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "interop"
JARS = PLACE / "jars"
MEGABYTES_NEEDED = 1500
_SECONDS_TO_FETCH = 900


class CannotBeHad(Exception):
    """Something from outside is missing; the text says what, in one sentence."""


@dataclass(frozen=True)
class Line:
    name: str
    artifact: str
    version: str
    environment: str
    """The lock in `tests/matrix` with the PySpark that the bundle is for."""
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
        Line("0.15", "hudi-spark3.5-bundle_2.12", "0.15.0", "oldest"),
        Line(
            "1.x", "hudi-spark3.5-bundle_2.12", "1.2.0", "oldest",
            {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"},
        ),
    )
}  # fmt: skip


def fetch(line: Line) -> None:
    """Put the line's bundle into the cache, by Maven; it stays there."""
    if line.jar.exists():
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotBeHad("Maven is needed to fetch Apache Hudi: there is no mvn on the PATH")
    JARS.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(JARS).free < MEGABYTES_NEEDED << 20:
        raise CannotBeHad(f"{MEGABYTES_NEEDED} MB of free disk are needed below {JARS}")
    artifact = f"org.apache.hudi:{line.artifact}:{line.version}"
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={JARS}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_TO_FETCH, cwd=JARS)
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"Maven did not deliver {artifact} in {_SECONDS_TO_FETCH} seconds") from None
    if ran.returncode != 0 or not line.jar.exists():
        raise CannotBeHad(f"Maven cannot deliver {artifact}: {_cause(ran.stdout)}")


def _cause(output: str) -> str:
    """What Maven gave as the reason, without where it looked."""
    errors = [text for text in output.splitlines() if "[ERROR]" in text]
    text = errors[0].partition("[ERROR]")[2] if errors else "it said nothing"
    return text.partition(" on project ")[2].partition(": ")[2].partition(" in ")[0].strip() or text.strip()


def main() -> int:
    try:
        for line in LINES.values():
            fetch(line)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
