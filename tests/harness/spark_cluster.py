"""A standalone Spark cluster of two workers on this machine, from the jars that come with PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from harness.servers import free_port, wait_until_it_listens

SPARK_HOME = Path(pyspark.__file__).parent
SOURCES = Path(__file__).resolve().parent.parent.parent / "src"
_DEPLOY = "org.apache.spark.deploy"
# Little of everything: daemons that only hand out work, over a handful of rows.
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    port: int
    work: tuple[Path, ...]
    """The folder of each worker: what its executors log is in there."""
    workers: tuple[int, ...]
    """The processes of the workers."""

    @property
    def master(self) -> str:
        return _address(self.port)

    @property
    def environment(self) -> dict[str, str]:
        """For a driver: its executors run this Python and these sources."""
        return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(SOURCES), **_HERE}

    def executors(self) -> list[int]:
        """The processes in which tasks run now."""
        return [
            int(pid)
            for worker in self.workers
            # Each thread has children of its own.
            for thread in Path(f"/proc/{worker}/task").iterdir()
            for pid in (thread / "children").read_text().split()
            if _is_executor(pid)
        ]

    def workers_that_ran(self) -> int:
        """Workers on which a task was run."""
        return sum(
            any("Running task" in log.read_text() for log in folder.rglob("stderr")) for folder in self.work
        )


def _is_executor(pid: str) -> bool:
    """A worker also starts helpers, of which one may stay as a process that has ended."""
    try:
        return b"ExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


_HERE = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    port = free_port()
    homes = tuple(folder / f"worker-{number}" for number in range(workers))
    with ExitStack() as stack:
        begun = stack.enter_context(
            _daemon(folder, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        )
        wait_until_it_listens(begun, port, log=folder / "master.Master.log")
        pids = []
        for home in homes:
            home.mkdir()
            options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            options += ["--work-dir", str(home), _address(port)]
            pids.append(stack.enter_context(_daemon(home, "worker.Worker", *options)).pid)
        yield Cluster(port=port, work=homes, workers=tuple(pids))


@contextmanager
def _daemon(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [SPARK_HOME / "bin" / "spark-class", f"{_DEPLOY}.{name}", *arguments]
    environment = {**os.environ, **_HERE, **_DAEMON}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        # A worker takes its executors with it.
        process.terminate()
        process.wait(30)


def _address(port: int) -> str:
    return f"spark://127.0.0.1:{port}"
