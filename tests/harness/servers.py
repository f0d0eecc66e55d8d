"""Servers that tests start: ZooKeeper, and waiting until somebody listens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_DEADLINE_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving_beside(command: Sequence[str], *, environment: Mapping[str, str]) -> Iterator[None]:
    """`holdfast serve` in a process of its own, from when it listens to the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        while not (line := process.stdout.readline()).startswith("Ctrl-C"):
            assert line, "the service did not start"
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


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


@contextmanager
def running_zookeeper(script: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A real server, started by ZooKeeper's own script; its port and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "zoo.cfg"
    config.write_text(
        f"clientPortAddress=127.0.0.1\nclientPort={port}\ndataDir={folder}/data\n"
        "tickTime=200\nadmin.enableServer=false\n"
    )
    environment = {**os.environ, "JMXDISABLE": "true", "ZOO_LOG_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [script, "start-foreground", str(config)], stdout=log, stderr=log, env=environment
        )
    try:
        wait_until_it_listens(process, port, log=folder / "log")
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()
