"""Delta tables through `deltalake`, in a new process for each act: see `delta_process`."""

from pathlib import Path

from bench.workloads.waiting import WaitingProcess

_SCRIPT = Path(__file__).with_name("delta_process.py")


def delta_process(action: str, table: Path, **needs: object) -> WaitingProcess:
    """A process that has read its rows and waits to be told."""
    return WaitingProcess(_SCRIPT, action=action, table=table, **needs)


def delta(action: str, table: Path, **needs: object) -> object:
    """Do one thing with a Delta table that nobody measures."""
    process = delta_process(action, table, **needs)
    answer = process.act()
    process.end()
    return answer
