"""Processes that are killed, with everything they started."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def kill_session(session: int) -> None:
    """Kill all of a session: the process that began it, its JVM, Python workers in groups of their own."""
    while members := [
        pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_in(pid, session)
    ]:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _is_in(pid: int, session: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    state, session_id = fields[0], int(fields[3])
    return session_id == session and state not in "ZX"
