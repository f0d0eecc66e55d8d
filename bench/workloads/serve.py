"""Serve: from the command to the line that says where the service listens, on a new store.

The limit is one process that loads what the service needs: the rest is the
service itself, and its query processes, for the first of which it waits.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.framework import Goal, Scene, Unit, Variant, Workload

_LIMIT = "its packages alone"
_OURS = "holdfast serve"
_SECONDS = 2.0
_PACKAGES = "duckdb, numpy, prometheus_client, pyarrow.parquet, sqlglot, starlette.applications, uvicorn"
_CONFIG = {"controller": {"port": 0}, "broker": {"port": 0}}


def serve() -> Workload:
    def set_up(folder: Path) -> Scene:
        service = _Service()
        variants = (
            Variant(
                _LIMIT, lambda _: subprocess.run([sys.executable, "-c", f"import {_PACKAGES}"], check=True)
            ),
            Variant(_OURS, service.start, finish=service.stop),
        )
        return Scene(variants)

    return Workload(name="serve", limit=_LIMIT, goals=(Goal(_OURS, _SECONDS, Unit.SECONDS),), set_up=set_up)


class _Service:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self, folder: Path) -> None:
        config = folder / "serve.yaml"
        config.write_text(json.dumps(_CONFIG))
        command = [sys.executable, "-m", "holdfast", "serve", "--json", "--config", str(config)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert "controller" in json.loads(self._process.stdout.readline()), "it says where it listens"

    def stop(self, _folder: Path) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
            self._process = None
