"""Jars by their Maven coordinates, kept in a cache of the repository."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

JARS = Path(__file__).resolve().parents[1] / "build" / "jars"
_SECONDS_TO_FETCH = 900


class CannotBeHad(Exception):
    """Something from outside is missing; the text says what, in one sentence."""


def fetched(coordinates: Sequence[str], *, megabytes: int, jars: Path = JARS) -> list[Path]:
    """The jars of these coordinates (`group:artifact:version`), by Maven unless they are there already.

    `megabytes` is what must be free on the disk before anything is fetched.
    """
    return [_fetched(coordinate, megabytes, jars) for coordinate in coordinates]


def _fetched(coordinate: str, megabytes: int, jars: Path) -> Path:
    _, artifact, version = coordinate.split(":")
    jar = jars / f"{artifact}-{version}.jar"
    if jar.exists():
        return jar
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotBeHad(f"Maven is needed to fetch {coordinate}: there is no mvn on the PATH")
    jars.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(jars).free < megabytes << 20:
        raise CannotBeHad(f"{megabytes} MB of free disk are needed below {jars}")
    copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={jars}"]
    try:
        ran = subprocess.run(copy, capture_output=True, text=True, timeout=_SECONDS_TO_FETCH, cwd=jars)
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"Maven did not deliver {coordinate} in {_SECONDS_TO_FETCH} seconds") from None
    if ran.returncode != 0 or not jar.exists():
        raise CannotBeHad(f"Maven cannot deliver {coordinate}: {_cause(ran.stdout)}")
    return jar


def _cause(output: str) -> str:
    """What Maven gave as the reason, without where it looked."""
    errors = [text for text in output.splitlines() if "[ERROR]" in text]
    text = errors[0].partition("[ERROR]")[2] if errors else "it said nothing"
    return text.partition(" on project ")[2].partition(": ")[2].partition(" in ")[0].strip() or text.strip()
