"""Commands on a screen of a given size: what a person sees there."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CHILD = """
import json, sys
from holdfast.cli.main import cli
for words in json.loads(sys.argv[1]):
    try:
        cli.main(words)
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        print(f"\\0{ended.code}\\0", end="", flush=True)
"""


def show_on_screen(
    commands: Sequence[Sequence[str]],
    columns: int,
    rows: int,
    *,
    environment: Mapping[str, str] | None = None,
) -> list[tuple[int, list[str]]]:
    """The exit code and the lines of each command, without colours, one after the other."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    given = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    shown: list[bytes] = []

    def collect() -> None:
        try:
            while chunk := os.read(ours, 1 << 16):
                shown.append(chunk)
        except OSError:  # Linux's way to say that the other side is closed.
            pass

    collecting = threading.Thread(target=collect)
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, json.dumps(commands)],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**given, "TERM": "xterm", **(environment or {})},
    ) as process:  # fmt: skip
        os.close(theirs)
        collecting.start()
        process.wait(timeout=300)
    collecting.join()
    os.close(ours)
    text = _STYLE.sub("", b"".join(shown).decode()).replace("\r\n", "\n")
    parts = text.split("\0")
    assert len(parts) == 2 * len(commands) + 1, text
    return [
        (int(code), printed.splitlines()) for printed, code in zip(parts[:-1:2], parts[1::2], strict=True)
    ]


def broken_identifiers(lines: Sequence[str], identifiers: Sequence[str]) -> list[str]:
    """Those of which a line has only the beginning at its end, or a column cut off the rest."""
    words = {word for line in lines for word in re.findall(r"[\w.=-]{7,}", line)} - set(identifiers)
    return [f"{word} of {each}" for word in words for each in identifiers if each.startswith(word)]
