"""Processes: what this one and its descendants take of the machine, read from `/proc`.

driver (this process) ─► JVM ─► worker daemon ─► Python workers
                      └► other processes: they count as driver
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.framework import Usage

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_EVERY_S = 0.1
_JVM = "java"
_PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    command: str
    started: str
    own_ticks: int
    reaped_ticks: int
    """Of children that ended and were waited for."""
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident bytes by role at one moment."""

    driver: int = 0
    jvm: int = 0
    workers: int = 0

    def highest(self, other: "Sample") -> "Sample":
        return Sample(
            max(self.driver, other.driver), max(self.jvm, other.jvm), max(self.workers, other.workers)
        )


class ProcessTree:
    """One process and its descendants, as seen so far.

    Spark's daemon does not wait for its workers, so the time of a worker that
    ended is in no counter any more; it is remembered as it was last seen.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._workers: dict[tuple[int, str], int] = {}

    def sample(self) -> tuple[float, Sample]:
        """CPU seconds spent so far, and memory now."""
        processes = _descendants(self._root)
        by_pid = {process.pid: process for process in processes}
        ticks = 0
        memory = Sample()
        for process in processes:
            parent = by_pid.get(process.parent)
            grandparent = by_pid.get(parent.parent) if parent else None
            is_worker = grandparent is not None and grandparent.command == _JVM
            is_daemon = parent is not None and parent.command == _JVM
            if is_worker:
                self._workers[process.pid, process.started] = process.own_ticks
            else:
                ticks += process.own_ticks + process.reaped_ticks
            size = process.resident_bytes
            if process.command == _JVM:
                # A child that the JVM has just forked still is the JVM; it must not count twice.
                memory = replace(memory, jvm=max(memory.jvm, size))
            elif not (is_worker or is_daemon):
                memory = replace(memory, driver=memory.driver + size)
            elif process.command.startswith(_PYTHON):
                # Others are forks of the JVM on their way to a shell command, named after a thread.
                memory = replace(memory, workers=memory.workers + size)
        return (ticks + sum(self._workers.values())) / _TICKS_PER_SECOND, memory


class ProcessMeter:
    """Measures this process and its descendants."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._tree = ProcessTree(os.getpid())

    def measure(self, act: Callable[[], object]) -> Usage:
        cpu_before, memory = self._tree.sample()
        busy_before = _machine_busy_s()
        with _sampling(self._tree) as watched:
            began = self._clock()
            act()
            seconds = self._clock() - began
        cpu_after, memory_after = self._tree.sample()
        cpu = cpu_after - cpu_before
        for sample in (*watched, memory_after):
            memory = memory.highest(sample)
        return Usage(
            seconds=seconds,
            cpu_seconds=cpu,
            foreign_cpu_seconds=max(0.0, _machine_busy_s() - busy_before - cpu),
            driver_peak_bytes=memory.driver,
            jvm_peak_bytes=memory.jvm,
            workers_peak_bytes=memory.workers,
        )


@contextmanager
def _sampling(tree: ProcessTree) -> Iterator[list[Sample]]:
    """Look at the tree every now and then until the block ends; the peak is the list's one element."""
    peak = [Sample()]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_EVERY_S):
            peak[0] = peak[0].highest(tree.sample()[1])

    thread = threading.Thread(target=watch, name="bench-sampler", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _descendants(root: int) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        process = _process(int(name)) if name.isdigit() else None
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    own = _process(root)
    found = [own] if own else []
    for process in found:
        # The list grows while it is gone through: children of children follow.
        found += children.get(process.pid, [])
    return found


def _process(pid: int) -> Process | None:
    try:
        stat = _text(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The command is in parentheses and may contain anything, so count from its end.
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        command=head.partition("(")[2],
        started=fields[19],
        own_ticks=int(fields[11]) + int(fields[12]),
        reaped_ticks=int(fields[13]) + int(fields[14]),
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def _machine_busy_s() -> float:
    """CPU seconds that all programs, and other machines on this hardware, took since the start."""
    user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, _text("/proc/stat").split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / _TICKS_PER_SECOND


def _text(path: str) -> str:
    with open(path, encoding="latin-1") as file:
        return file.read()
