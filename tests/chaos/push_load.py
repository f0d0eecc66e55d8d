"""Query clients and pushers on the push service while its processes are stopped and killed.

    make push-chaos       HOLDFAST_SEED and HOLDFAST_CHAOS_SECONDS choose the run

Three processes of `holdfast serve` share one SQLite store and one deep store.
Eight clients query the first two, two pushers switch and revert through all
three at full speed, retention runs all the time. The second process is
restarted (SIGTERM) again and again, the third is killed (SIGKILL). The first
survives, and no query of it may fail. Every row carries the number of its
snapshot, so an answer from two snapshots, or from a part of one, gives itself
away.

The seed gives what is pushed and the order of the blows, not the exact moment
each falls.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from chaos.push_actors import TABLES, TARGETS, Caller, Client, Pusher, Told
from chaos.push_history import Answer, Switch, TableHistory, gone_back, mixed
from chaos.push_servers import PATIENCE_S, Server
from harness.push_client import config
from holdfast.clock import SystemClock
from holdfast.config.push import name_with_type
from holdfast.push.audit import check_chain, read_audit
from holdfast.push.metastore.open import open_metastore
from holdfast.push.replacement.snapshots import snapshots
from holdfast.push.segments.deep_store import DeepStore
from holdfast.push.state.catalog import Catalog
from holdfast.storage.open import location_of, open_store

CLIENTS = 8
PUSHERS = 2
_RETAINED = 2
_KEPT = {
    "stock": {"replacedSegmentsRetentionPeriod": "2s"},
    "prices": {"replacedSegmentsRetentionPeriod": "1d"},
    "orders": {"replacedSegmentsRetentionPeriod": "1d"},
    "items": {"replacedSegmentsRetentionPeriod": "1d"},
}
_ABANDONED = "3s"
"""So long a push may be open without a sign of life."""


@dataclass(kw_only=True)
class Report:
    """What a run did. It passed if there are no violations."""

    seed: int
    seconds: float
    queries: int
    survivor: int
    """Of the queries, those that the process answered that was never stopped."""
    pushes: int
    groups: int
    """Of the pushes, those that switched two tables in one call."""
    reverts: int
    refused: int
    restarts: int
    kills: int
    retentions: int
    unanswered: int
    """Requests to a process that was just stopped or killed."""
    violations: list[str]

    def __str__(self) -> str:
        return (
            f"push load with seed {self.seed}: {self.seconds:.0f} s, {self.queries} queries "
            f"({self.survivor} by the survivor), {self.pushes} pushes ({self.groups} of two tables), "
            f"{self.reverts} reverts, {self.refused} refused, {self.retentions} retention runs, "
            f"{self.restarts} restarts, {self.kills} kills, {self.unanswered} unanswered by the stopped, "
            f"violations {len(self.violations)}"
        )


class PushLoad:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, *, seed: int, seconds: float) -> None:
        self.folder = folder
        self._seed = seed
        self._seconds = seconds
        self._shared = folder / "data"
        self.servers = [Server(name, folder / name) for name in ("survivor", "restarted", "killed")]
        self._numbers = itertools.count(1)
        self._told: list[Told] = []
        self.violations: list[str] = []
        self._is_over = threading.Event()
        self._blows = Counter[str]()

    @property
    def answers(self) -> list[Answer]:
        return [answer for told in self._told for answer in told.answers]

    @property
    def switches(self) -> list[Switch]:
        return [switch for told in self._told for switch in told.switches]

    @property
    def refusals(self) -> Counter[tuple[str, str]]:
        return sum((told.refusals for told in self._told), Counter())

    def run(self) -> Report:
        self._shared.mkdir()
        for server, queries in zip(self.servers, (4, 2, 1), strict=True):
            server.configure(self._shared, queries=queries)
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_until_up()
            self._make_tables()
            return self._loaded()
        finally:
            for server in self.servers:
                if server.process is not None and server.process.poll() is None:
                    self._stopped(server)

    def _loaded(self) -> Report:
        began = time.monotonic()
        acts: list[Callable[[random.Random, Told], None]] = [self._restart, self._kill, self._retain]
        acts += [Client(self, number).run for number in range(CLIENTS)]
        acts += [Pusher(self).run for _ in range(PUSHERS)]
        threads = [
            threading.Thread(target=self._guarded, args=(number, act)) for number, act in enumerate(acts)
        ]
        for thread in threads:
            thread.start()
        self._is_over.wait(self._seconds)
        self._await(lambda: self._is_over.is_set() or self._has_seen_all(), "a slow machine saw too little")
        self._is_over.set()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        self._check()
        return self._report(seconds)

    def _has_seen_all(self) -> bool:
        """Whether everything happened at least once that a run is for."""
        counts = self._counted()
        happened = all(counts[what] for what in ("pushes", "groups", "reverts", "retentions"))
        return happened and bool(self._blows["restarts"] and self._blows["kills"]) and len(self.answers) > 100

    def _guarded(self, number: int, act: Callable[[random.Random, Told], None]) -> None:
        told = Told()
        self._told.append(told)
        try:
            act(random.Random(f"{self._seed} {number}"), told)
        except Exception:  # noqa: BLE001  # whatever it was, the run has failed
            self.violations.append(f"an act failed: {traceback.format_exc()}")
            self._is_over.set()

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                self.violations.append(complaint)
                return
            time.sleep(0.05)

    # Blows

    def _restart(self, chance: random.Random, _told: Told) -> None:
        while not self._is_over.wait(chance.uniform(1, 4)):
            self._stopped(self.servers[1])
            self._come_back(self.servers[1], chance)
            self._blows["restarts"] += 1

    def _kill(self, chance: random.Random, _told: Told) -> None:
        """In the middle of a call, if there is one: then nobody is told what became of it."""
        server = self.servers[2]
        while not self._is_over.wait(chance.uniform(1, 4)):
            while not (server.asked or self.is_over):
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.01))
            server.end(signal.SIGKILL)
            self._come_back(server, chance)
            self._blows["kills"] += 1

    def _come_back(self, server: Server, chance: random.Random) -> None:
        # So soon that others still believe it alive, or so late that they do not.
        self._is_over.wait(chance.choice((0, 0, 2, 20)) if self._seconds > 20 else 0)
        server.start()

    def _stopped(self, server: Server) -> None:
        code = server.end(signal.SIGTERM)
        if code:
            self.violations.append(f"{server.name} ended with {code}: {server.said()[-3000:]}")

    def _retain(self, chance: random.Random, told: Told) -> None:
        """Retention on demand, beside what every process does by itself."""
        caller = Caller(self, self.servers, told)
        while not self._is_over.wait(chance.uniform(0, 0.2)):
            answer, _ = caller.call("POST", "/periodictask/run", chance, params=_task(chance.choice(TABLES)))
            if answer.status_code == 200:
                told.counts["retentions"] += 1
            else:
                caller.refused("retention", answer)

    # Before

    def _make_tables(self) -> None:
        chance = random.Random(self._seed)
        told = Told()
        self._told.append(told)
        caller = Caller(self, self.servers, told)
        for table in TABLES:
            for path, document in (("/schemas", _schema(table)), ("/tables", _table(table))):
                answer, _ = caller.call("POST", path, chance, json=document)
                assert answer.status_code == 200, answer.text
        pusher = Pusher(self)
        for tables in TARGETS:
            assert pusher.push(tables, chance, caller, told, is_plain=True), self.violations
        for server in self.servers[:2]:
            for table in TABLES:
                self._await(lambda s=server, t=table: _is_queryable(s, t), f"{table} cannot be queried")

    # Afterwards

    def _check(self) -> None:
        # Whoever has come back must see to it that what is left over goes.
        self._await(self._is_tidy, "storage holds more than the retained snapshots")
        self.violations += mixed(self.answers)
        for told in self._told:
            self.violations += gone_back(told.answers)
        for table, history in self.histories().items():
            for switch in self.switches:
                if switch.table == table:
                    history.check_switch(switch)
            for answer in self.answers:
                if table in answer.epochs:
                    history.check_epoch(answer, table)
            self.violations += history.violations
        for server in self.servers:
            if "Traceback" in server.said() or '"level": "error"' in server.said():
                self.violations.append(f"{server.name} said {server.said()[-3000:]}")

    def histories(self) -> dict[str, TableHistory]:
        with self.opened() as catalog:
            found = {}
            for table in TABLES:
                state = catalog.load(name_with_type(table))
                check_chain(catalog.metastore, state.table, state.push)
                audit = read_audit(catalog.metastore, state.table, limit=1_000_000)
                found[table] = TableHistory(tuple(reversed(audit)), state.lineage)
            return found

    def _is_tidy(self) -> bool:
        """Whether retention has left the retained snapshots, and no other file."""
        for table in TABLES:
            httpx2.post(
                f"{self.servers[0].controller_url}/periodictask/run", params=_task(table), timeout=PATIENCE_S
            ).raise_for_status()
        return not any(self.surplus().values())

    def surplus(self) -> dict[str, list[str]]:
        """By table, what storage holds beyond the retained snapshots, and what it lacks of them."""
        deep_store = DeepStore(open_store(location_of(str(self._shared / "segments"))))
        with self.opened() as catalog:
            return {table: self._surplus(catalog, deep_store, name_with_type(table)) for table in TABLES}

    @staticmethod
    def _surplus(catalog: Catalog, deep_store: DeepStore, table: str) -> list[str]:
        state = catalog.load(table)
        kept = snapshots(state)
        wanted = frozenset[str]().union(*(one.segments for one in kept))
        found = sorted(state.segments ^ wanted)
        if len(kept) > _RETAINED:
            found.append(f"{len(kept)} snapshots")
        named = {segment.uri for segment in catalog.all_segments(table).values()}
        found += sorted(named ^ {file.path for file in deep_store.files(table)})
        return found

    def opened(self) -> _Opened:
        return _Opened(f"sqlite:///{self._shared}/push.db")

    def _counted(self) -> Counter[str]:
        return sum((told.counts for told in self._told), Counter())

    def _report(self, seconds: float) -> Report:
        counts, answers = self._counted(), self.answers
        return Report(
            seed=self._seed,
            seconds=seconds,
            queries=len(answers),
            survivor=sum(answer.broker == self.servers[0].name for answer in answers),
            pushes=counts["pushes"],
            groups=counts["groups"],
            reverts=counts["reverts"],
            refused=self.refusals.total(),
            restarts=self._blows["restarts"],
            kills=self._blows["kills"],
            retentions=counts["retentions"],
            unanswered=counts["unanswered"],
            violations=self.violations,
        )

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def next_number(self) -> int:
        return next(self._numbers)


class _Opened:
    """The store, read beside the processes."""

    def __init__(self, uri: str) -> None:
        self._metastore = open_metastore(uri, clock=SystemClock())

    def __enter__(self) -> Catalog:
        return Catalog(self._metastore)

    def __exit__(self, *_: object) -> None:
        self._metastore.close()


def _is_queryable(server: Server, table: str) -> bool:
    answer = httpx2.post(f"{server.broker_url}/query/sql", json={"sql": f"SELECT count(*) FROM {table}"})
    document = answer.json()
    return not document["exceptions"] and document["resultTable"]["rows"][0][0] > 0


def _schema(table: str) -> dict[str, Any]:
    fields = [{"name": "id", "dataType": "LONG"}, {"name": "n", "dataType": "LONG"}]
    return {"schemaName": table, "dimensionFieldSpecs": fields}


def _table(table: str) -> dict[str, Any]:
    periods = {"lineageEntryCleanupRetentionPeriod": _ABANDONED, "deletedSegmentsRetentionPeriod": "0d"}
    return config(
        table, consistent=True, segments={**periods, **_KEPT[table]}, batch={"retainedSnapshots": _RETAINED}
    )


def _task(table: str) -> dict[str, str]:
    return {"taskname": "RetentionManager", "tableName": table, "type": "OFFLINE"}


def main() -> int:
    seed = int(os.environ.get("HOLDFAST_SEED", random.randrange(1_000_000)))
    seconds = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", 60))
    folder = Path(tempfile.mkdtemp(prefix="holdfast-push-"))
    load = PushLoad(folder, seed=seed, seconds=seconds)
    report = load.run()
    sys.stdout.write(f"{report}\n")
    for (call, code), count in sorted(load.refusals.items()):
        sys.stdout.write(f"  {call} refused {count} times: {code}\n")
    if report.violations:
        shown = report.violations[:50]
        sys.stdout.write("\n".join(["", *shown, "", f"HOLDFAST_SEED={seed}, left in {folder}", ""]))
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
