"""Who is writing: the identity of a process, and whether it can still act.

An owner is *provably* alive or gone only on the same host and the same boot.
Everything else is unknown, and unknown decides nothing.
"""

import os
import socket
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Owner:
    """One writer: a process, and the token of one write in it."""

    host: str
    boot: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Liveness(Enum):
    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class Host(Protocol):
    def owner(self, token: str) -> Owner:
        """This process as the owner of the write called `token`."""

    def liveness(self, owner: Owner) -> Liveness:
        """Whether the owner can still act."""


def heartbeat_thread(token: str) -> str:
    """The name of the thread that beats for a write; it lives exactly as long as the write."""
    return f"holdfast-heartbeat-{token}"


class SystemHost:
    """The machine this process runs on."""

    def owner(self, token: str) -> Owner:
        pid = os.getpid()
        return Owner(socket.gethostname(), boot_id(), pid, _started(pid) or "", token)

    def liveness(self, owner: Owner) -> Liveness:
        if owner.host != socket.gethostname() or not owner.boot:
            return Liveness.UNKNOWN
        if owner.boot != boot_id():
            return Liveness.GONE
        # A pid is reused after a while; together with its start time it is not.
        if _started(owner.pid) != owner.started:
            return Liveness.GONE
        if owner.pid != os.getpid():
            return Liveness.ALIVE
        names = {thread.name for thread in threading.enumerate()}
        return Liveness.ALIVE if heartbeat_thread(owner.token) in names else Liveness.GONE


def boot_id() -> str:
    """What tells one boot of this machine from another; empty where there is no such thing."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When the process started, in ticks since boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            stat = file.read()
    except OSError:
        return None
    # The command name is in parentheses and may contain anything, so count from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
