"""Servers that tests start: waiting until somebody listens."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

_DEADLINE_S = 60


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int, *, log: Path | None = None) -> None:
    """Until the process accepts connections; an error with its log if it ends or takes a minute."""
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:] if log else 'it has no log'}")
