"""Who is writing: the identity of a process, and whether it can still act.

An owner is *provably* alive or gone only to those who see the same processes:
on the same host and boot, and in the same namespaces. Containers may share a
host name and a boot, and each counts its processes for itself. Everything else
is unknown, and unknown decides nothing.
"""

import os
import socket
import threading
from contextlib import suppress
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
    namespaces: str = ""
    """In which processes are counted, and their times; empty if nobody can tell."""

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
        return Owner(socket.gethostname(), boot_id(), pid, _start_ticks(pid) or "", token, _namespaces())

    def liveness(self, owner: Owner) -> Liveness:
        if owner.host != socket.gethostname() or not owner.boot:
            return Liveness.UNKNOWN
        if not owner.namespaces or owner.namespaces != _namespaces():
            return Liveness.UNKNOWN
        if owner.boot != boot_id():
            # The host's own processes ended with it. Containers of one name may run on many hosts.
            return Liveness.GONE if _is_of_the_host(owner) else Liveness.UNKNOWN
        if owner.pid != os.getpid() and _is_hidden(owner.pid):
            return Liveness.UNKNOWN
        # A pid is reused after a while; together with its start time it is not.
        if _start_ticks(owner.pid) != owner.started:
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


_HOST_PIDS = "pid:[4026531836]"
"""The process namespace of the host itself, which is the same on every Linux."""


def _namespaces() -> str:
    """In which namespaces this process counts others; empty if what `/proc` shows are not these."""
    try:
        # Whoever enters a namespace without mounting /proc anew sees the processes of another one.
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        pids = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    with suppress(OSError):  # Kernels before 5.6 have one time for all.
        return f"{pids} {os.readlink('/proc/self/ns/time')}"
    return pids


def _is_of_the_host(owner: Owner) -> bool:
    return owner.namespaces.startswith(_HOST_PIDS)


def _is_hidden(pid: int) -> bool:
    """Whether the process is there, and `/proc` does not show it to this user."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1"):
            return False
    except PermissionError:
        return True
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    # It may have begun just now.
    return not os.path.exists(f"/proc/{pid}/stat")


def _start_ticks(pid: int) -> str | None:
    """When the process started, in ticks since boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            stat = file.read()
    except OSError:
        return None
    # The command name is in parentheses and may contain anything, so count from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have; none if nobody can tell."""
    parents: dict[int, int] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError), open(f"/proc/{name}/stat", encoding="latin-1") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]
