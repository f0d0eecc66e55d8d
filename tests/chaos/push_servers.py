"""Processes of the push service that can be stopped, killed and started again on the same ports."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_S = 60


@dataclass
class Server:
    """One process of the service, in one life after the other on the same ports."""

    name: str
    folder: Path
    controller_url: str = ""
    broker_url: str = ""
    life: int = 0
    """Odd while it is up."""
    process: subprocess.Popen[bytes] | None = None
    asked: set[int] = field(default_factory=set)
    """The threads that wait for an answer of it."""

    @property
    def is_up(self) -> bool:
        return self.life % 2 == 1

    def configure(self, shared: Path, *, queries: int) -> None:
        ports = _free_ports(2)
        self.controller_url, self.broker_url = (f"http://127.0.0.1:{port}" for port in ports)
        settings = {
            "store": f"sqlite:///{shared}/push.db", "deep_store": f"{shared}/segments",
            "controller": {"port": ports[0]}, "broker": {"port": ports[1]},
            "limits": {"requests_per_second": 1_000_000, "concurrent_queries": queries},
            # A kill between the bytes of an upload and its record leaves a file that only the scan removes.
            "retention": {"frequency": "1s", "initial_delay": "0s", "orphans": "10s"},
        }  # fmt: skip
        self.folder.mkdir()
        (self.folder / "serve.yaml").write_text(json.dumps(settings))

    def start(self) -> None:
        self.launch()
        self.wait_until_up()

    def launch(self) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "holdfast", "serve", "--json"]
        arguments = ["--config", str(self.folder / "serve.yaml")]
        with open(self.folder / "stderr", "ab") as errors:
            self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=errors)

    def wait_until_up(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        # It prints where it listens once it does.
        if not self.process.stdout.readline():
            raise RuntimeError(f"{self.name} did not start: {self.said()[-3000:]}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.life += 1

    def end(self, number: signal.Signals) -> int:
        """Send the signal; the exit code."""
        assert self.process is not None
        if self.is_up:
            self.life += 1
        self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            # Makes it say where it hangs.
            self.process.send_signal(signal.SIGABRT)
            return self.process.wait()

    def said(self) -> str:
        path = self.folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports
