"""Fetch Pinot's Java clients, and say in which folder they are: one of each release."""

import shutil
import subprocess
import sys

from bench.maven import JARS, CannotBeHad

RELEASES = ("1.2.0", "0.11.0")
_CLIENTS = ("pinot-java-client", "pinot-jdbc-client", "pinot-common")
_SECONDS = 1800
_MEGABYTES = 1500


def main() -> int:
    try:
        for release in RELEASES:
            _fetch(release)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 1
    sys.stdout.write(f"{JARS / 'pinot'}\n")
    return 0


def _fetch(release: str) -> None:
    """The clients of a release with all that they need, unless they are there already."""
    folder = JARS / "pinot" / release
    if (folder / "lib").is_dir():
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotBeHad("Maven is needed to fetch Pinot's clients: there is no mvn on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < _MEGABYTES << 20:
        raise CannotBeHad(f"{_MEGABYTES} MB of free disk are needed below {folder}")
    needed = "".join(
        f"<dependency><groupId>org.apache.pinot</groupId><artifactId>{one}</artifactId>"
        f"<version>{release}</version></dependency>"
        for one in _CLIENTS
    )
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>holdfast</groupId><artifactId>pinot-clients</artifactId><version>{release}</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )
    copy = [
        maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
        f"-DoutputDirectory={folder / 'fetched'}",
    ]  # fmt: skip
    try:
        ran = subprocess.run(copy, capture_output=True, text=True, timeout=_SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"Maven did not deliver Pinot {release} in {_SECONDS} seconds") from None
    if ran.returncode != 0:
        raise CannotBeHad(f"Maven cannot deliver the clients of Pinot {release}")
    # Only what is whole gets the name by which it is found.
    (folder / "fetched").rename(folder / "lib")


if __name__ == "__main__":
    sys.exit(main())
