"""Four writers on one table while processes are killed, stopped past their expiry and continued.

    make chaos            HOLDFAST_SEED and HOLDFAST_CHAOS_SECONDS choose the run

Meanwhile others read the table, roll back failed writes, take savepoints, undo
commits and verify. Afterwards every acknowledged batch must be in the table
exactly once, every other one entirely or not at all, and every state that a
reader saw must be one that the ledger's order gives.

The seed gives the batches and the order of the blows, not the exact moment
each falls.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import holdfast
from chaos.history import History, Read, Stop, difference, read_lives, rows_of
from chaos.kept_ledger import all_entries, keeping_entries
from chaos.writer import OUTCOME_UNKNOWN, WRITERS
from harness.checker import check_at_rest
from harness.hudi_reader import hudi_snapshot
from holdfast.config.choices import TableType
from holdfast.errors import Conflict, Refused
from holdfast.model.instant import Action
from holdfast.model.reports import Severity
from holdfast.services.verify.verify import verify

_TESTS = Path(__file__).resolve().parent.parent
_PATIENCE_S = 60
_HUDI_EVERY = 10
_CARE = {"roll back": 6, "savepoint": 2, "undo": 1, "verify": 2, "compact": 4}


@dataclass(kw_only=True)
class Report:
    """What a run did. It passed if there are no violations."""

    seed: int
    table_type: str
    seconds: float
    batches: int
    acknowledged: int
    conflicts: int
    kills: int
    stops: int
    fenced: int
    rollbacks: int
    compactions: int
    undone: int
    reads: int
    violations: list[str]

    def __str__(self) -> str:
        return (
            f"chaos with seed {self.seed}, {self.table_type}: {self.seconds:.0f} s, {self.batches} batches, "
            f"{self.acknowledged} acknowledged, {self.conflicts} conflicts, {self.kills} kills, "
            f"{self.stops} stops, {self.fenced} fenced, {self.rollbacks} rollbacks, "
            f"{self.compactions} compactions, {self.undone} undone, {self.reads} reads, "
            f"violations {len(self.violations)}"
        )


@dataclass
class _Writer:
    number: int
    lives: int = 0
    process: subprocess.Popen[bytes] | None = None
    held: threading.Lock = field(default_factory=threading.Lock)
    """Whoever holds it may do something to the process."""

    @property
    def name(self) -> str:
        """Of its present life, and of the log it writes."""
        return f"w{self.number}-{self.lives:04}"


class Chaos:
    """One run in a folder of its own: `table`, `logs`, and what processes said on stderr."""

    def __init__(self, folder: Path, *, seed: int, seconds: float, table_type: str = "COPY_ON_WRITE") -> None:
        self.table = folder / "table"
        self.logs = folder / "logs"
        self.reads: list[Read] = []
        self.stops: list[Stop] = []
        self._seed = seed
        self._table_type = table_type
        self._compactions = 0
        self._seconds = seconds
        self._stop = folder / "stop"
        self._writers = [_Writer(number) for number in range(WRITERS)]
        self._kills = 0
        self._violations: list[str] = []
        self._is_over = threading.Event()

    def run(self) -> Report:
        with keeping_entries(self.table):
            return self._run()

    def _run(self) -> Report:
        self.logs.mkdir()
        holdfast.create_table(
            str(self.table),
            name="chaos",
            record_key="id",
            partition_by="part",
            table_type=self._table_type,
        )
        began = time.monotonic()
        for writer in self._writers:
            self._start(writer)
        acts = (self._kill_writers, self._stop_writers, self._read, self._care)
        threads = [threading.Thread(target=self._guarded, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        self._is_over.wait(self._seconds)
        self._await(lambda: self._is_over.is_set() or self._has_seen_all(), "a slow machine saw too little")
        self._is_over.set()
        for thread in threads:
            thread.join()
        self._stop.touch()
        for writer in self._writers:
            self._finish(writer)
        return self._checked(time.monotonic() - began)

    def _has_seen_all(self) -> bool:
        """Whether everything happened at least once that a run is for."""
        lives = read_lives(self.logs)
        is_fenced = any(life.fenced for life in lives)
        is_busy = sum(len(life.acknowledged) for life in lives) > 2 * WRITERS
        return bool(self._kills and self.stops and self.reads) and is_fenced and is_busy

    def _guarded(self, act: Callable[[random.Random], None]) -> None:
        try:
            act(random.Random(f"{self._seed} {act.__name__}"))
        except Exception:  # noqa: BLE001  # whatever it was, the run has failed
            self._violations.append(f"{act.__name__} failed: {traceback.format_exc()}")
            self._is_over.set()

    # Writers

    def _start(self, writer: _Writer) -> None:
        writer.lives += 1
        seed = f"{self._seed}-{writer.name}"
        command = [sys.executable, "-X", "faulthandler", "-m", "chaos.writer"]
        arguments = [str(self.table), str(self._log_of(writer)), str(writer.number), seed, str(self._stop)]
        arguments.append(self._table_type)
        with open(self._errors_of(writer), "wb") as errors:
            writer.process = subprocess.Popen([*command, *arguments], cwd=_TESTS, stderr=errors)

    def _log_of(self, writer: _Writer) -> Path:
        return self.logs / f"{writer.name}.jsonl"

    def _errors_of(self, writer: _Writer) -> Path:
        return self.logs / f"{writer.name}.stderr"

    def _ended(self, writer: _Writer, code: int) -> None:
        if code not in (0, OUTCOME_UNKNOWN):
            said = self._errors_of(writer).read_text(errors="replace")
            self._violations.append(f"{writer.name} ended with {code}: {said[-3000:]}")

    def _finish(self, writer: _Writer) -> None:
        assert writer.process is not None
        try:
            self._ended(writer, writer.process.wait(_PATIENCE_S))
        except subprocess.TimeoutExpired:
            # Makes it say where it hangs.
            writer.process.send_signal(signal.SIGABRT)
            self._ended(writer, writer.process.wait())

    def _kill_writers(self, chance: random.Random) -> None:
        while not self._is_over.wait(chance.uniform(0.1, 2)):
            writer = chance.choice(self._writers)
            # On a slow machine nobody would come far otherwise.
            is_spared = chance.random() < 0.7 and not self._has_written(writer)
            if is_spared or not writer.held.acquire(blocking=False):
                continue
            try:
                self._kill(writer)
                self._is_over.wait(chance.uniform(0, 0.5))
                self._start(writer)
            finally:
                writer.held.release()

    def _has_written(self, writer: _Writer) -> bool:
        """Whether the process has come to the end of a batch."""
        log = self._log_of(writer)
        return log.exists() and b'"Ended"' in log.read_bytes()

    def _kill(self, writer: _Writer) -> None:
        assert writer.process is not None
        writer.process.kill()
        code = writer.process.wait()
        if code == -signal.SIGKILL:
            self._kills += 1
        else:
            self._ended(writer, code)

    def _stop_writers(self, chance: random.Random) -> None:
        while not self._is_over.wait(chance.uniform(0.5, 2)):
            writer = chance.choice(self._writers)
            with writer.held:
                assert writer.process is not None
                try:
                    self._stop_one(writer, writer.process.pid, chance)
                finally:
                    with suppress(ProcessLookupError):
                        writer.process.send_signal(signal.SIGCONT)

    def _stop_one(self, writer: _Writer, pid: int, chance: random.Random) -> None:
        """Stop a process in the middle of a write until others have rolled that write back."""
        table = holdfast.open_table(str(self.table))
        instant = self._caught(table, pid, chance)
        if instant is None:
            return
        self._await(lambda: instant in table._opened.ledger.read().aborted, f"nobody rolled back {instant}")
        time.sleep(chance.uniform(0, 1))
        log = self._log_of(writer)
        size = log.stat().st_size
        os.kill(pid, signal.SIGCONT)
        self._await(lambda: log.stat().st_size > size, f"{writer.name} does not go on")
        self.stops.append(Stop(instant, log.stem))

    def _caught(self, table: holdfast.Table, pid: int, chance: random.Random) -> str | None:
        """Stop the process where it has an undecided write, whose instant this is."""
        while not self._is_over.wait(chance.uniform(0, 0.1)):
            os.kill(pid, signal.SIGSTOP)
            if not _is_at_rest(pid):
                return None
            for time_, begun in table._opened.ledger.read().begun.items():
                if begun.owner.pid == pid:
                    return time_
            os.kill(pid, signal.SIGCONT)
        return None

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                self._violations.append(complaint)
                return
            time.sleep(0.02)

    # Others

    def _read(self, chance: random.Random) -> None:
        table = holdfast.open_table(str(self.table))
        count = 0
        while not self._is_over.wait(chance.uniform(0, 0.1)):
            count += 1
            is_hudi = count % _HUDI_EVERY == 0
            shown = _newest_shown(table)
            if not shown:
                continue
            rows = self._seen(table, is_hudi=is_hudi)
            decided = table._opened.ledger.read().slot
            if rows is not None:
                self.reads.append(Read("hudi-rs" if is_hudi else "Holdfast", shown, decided, rows))

    def _seen(self, table: holdfast.Table, *, is_hudi: bool) -> pa.Table | None:
        """None if the read failed as it may: the file it names was of a commit that was taken back.

        hudi-rs opens log files of writes that failed, too, and does not mind their blocks.
        """
        try:
            return hudi_snapshot(self.table) if is_hudi else table.to_arrow()
        except Exception as error:
            aborted = table._opened.ledger.read().aborted
            taken_back = [time for time, one in aborted.items() if one.revoked_by is not None]
            is_gone = is_hudi and ".log." in str(error) and "not found" in str(error).lower()
            if not is_gone and not any(time in str(error) for time in taken_back):
                raise
            return None

    def _care(self, chance: random.Random) -> None:
        """What others do to a table that is written to."""
        while not self._is_over.wait(chance.uniform(0, 2)):
            table = holdfast.open_table(str(self.table))
            act = chance.choices(*zip(*_CARE.items(), strict=True))[0]
            match act:
                case "roll back":
                    table.roll_back_failed_writes()
                case "savepoint":
                    with suppress(Refused, Conflict):
                        table.savepoint(user="chaos")
                case "undo":
                    with suppress(Refused, Conflict):
                        table.undo()
                case "compact" if self._table_type == "MERGE_ON_READ":
                    with suppress(Refused, Conflict):
                        self._compactions += table.compact() is not None
                case "verify":
                    # A writer that was killed after its commit leaves something to be tidied up.
                    self._verify(table, tolerated=(Severity.INFO, Severity.WARNING))

    def _verify(self, table: holdfast.Table, *, tolerated: tuple[Severity, ...]) -> None:
        found = [one for one in verify(table._opened).findings if one.severity not in tolerated]
        if found:
            self._violations.append(f"verify found {found}")

    # Afterwards

    def _checked(self, seconds: float) -> Report:
        table = holdfast.open_table(str(self.table))
        table.roll_back_failed_writes()
        history = self.history()
        history.check_calls()
        history.check_reads(self.reads)
        for stop in self.stops:
            history.check_stop(stop)
        for reader, rows in (("Holdfast", table.to_arrow()), ("hudi-rs", hudi_snapshot(self.table))):
            if rows_of(rows) != history.rows:
                self._violations.append(f"{reader} at the end: {difference(history.rows, rows_of(rows))}")
        self._verify(table, tolerated=())
        try:
            check_at_rest(table._opened)
        except AssertionError as violation:
            self._violations.append(str(violation))
        return self._report(history, table, seconds)

    def history(self) -> History:
        return History(all_entries(self.table), read_lives(self.logs))

    def _report(self, history: History, table: holdfast.Table, seconds: float) -> Report:
        calls = history.calls
        rollbacks = [i for i in table.timeline(archived=True) if i.action is Action.ROLLBACK]
        return Report(
            seed=self._seed,
            table_type=self._table_type,
            seconds=seconds,
            batches=len(calls),
            acknowledged=sum(len(life.acknowledged) for life in history.lives),
            conflicts=sum(len(call.conflicts) for call in calls),
            kills=self._kills,
            stops=len(self.stops),
            fenced=sum(len(life.fenced) for life in history.lives),
            rollbacks=len(rollbacks),
            compactions=self._compactions,
            undone=history.revoked,
            reads=len(self.reads),
            violations=[*self._violations, *history.violations],
        )


def _is_at_rest(pid: int) -> bool:
    """Wait until a process that was sent SIGSTOP has stopped; False if it is gone."""
    while True:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "TZX":
            return state == "T"
        time.sleep(0.001)


def _newest_shown(table: holdfast.Table) -> int:
    """The slot of the newest commit that is shown; 0 if there is none."""
    shown = [instant.time for instant in table.timeline() if instant.is_completed]
    committed = table._opened.ledger.read().committed
    return max((committed[time].slot for time in shown if time in committed), default=0)


def main() -> int:
    seed = int(os.environ.get("HOLDFAST_SEED", random.randrange(1_000_000)))
    seconds = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", 120))
    return max(_run_one(table_type, seed, seconds) for table_type in TableType)


def _run_one(table_type: str, seed: int, seconds: float) -> int:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    report = Chaos(folder, seed=seed, seconds=seconds, table_type=table_type).run()
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    if report.violations:
        sys.stdout.write(
            "\n".join(["", *report.violations, "", f"HOLDFAST_SEED={seed}, left in {folder}", ""])
        )
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
