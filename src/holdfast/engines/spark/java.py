"""Java: whether this machine has one that Spark can run on.

Needs nothing but Python itself, so that it can be asked before anything is
installed: `python -m holdfast.engines.spark.java` says what is missing.
"""

import os
import re
import shutil
import subprocess
import sys

from holdfast.errors import InvalidRequest

_WANTED = 17
_HINT = f"install Java {_WANTED} or newer, for example with: apt-get install openjdk-17-jre-headless"


def require_java() -> None:
    """`InvalidRequest` with what to install if Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise InvalidRequest("Spark needs Java and none was found", looked_at=java or "PATH", hint=_HINT)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "(?:1\.)?([0-9]+)', answer.stderr + answer.stdout)
    if match is None or int(match[1]) < _WANTED:
        found = match[1] if match else "unknown"
        raise InvalidRequest("Spark needs a newer Java", found=found, java=java, hint=_HINT)


def main() -> int:
    try:
        require_java()
    except InvalidRequest as problem:
        print(f"holdfast: {problem}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
