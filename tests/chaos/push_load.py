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

import io
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from chaos.push_history import (
    Answer,
    Switch,
    TableHistory,
    gone_back,
    mixed,
    parts_of,
    rows_of,
    segment_name,
)
from harness.push_client import config
from holdfast.clock import SystemClock
from holdfast.config.push import typed_name
from holdfast.push.audit import check_chain, read_audit
from holdfast.push.catalog import Catalog
from holdfast.push.deep_store import DeepStore
from holdfast.push.metastore.open import open_metastore
from holdfast.push.snapshots import snapshots
from holdfast.storage.open import location_of, open_store

CLIENTS = 8
PUSHERS = 2
GROUP = ("orders", "items")
"""Always switched in one call."""
TARGETS = (("stock",), ("prices",), GROUP)
TABLES = ("stock", "prices", *GROUP)
_RETAINED = 2
_KEPT = {
    "stock": {"replacedSegmentsRetentionPeriod": "2s"},
    "prices": {"replacedSegmentsRetentionPeriod": "1d"},
    "orders": {"replacedSegmentsRetentionPeriod": "1d"},
    "items": {"replacedSegmentsRetentionPeriod": "1d"},
}
_ABANDONED = "3s"
"""So long a push may be open without a sign of life."""
_PATIENCE_S = 60
_SLOW = 0.03
_ONE = "SELECT min(n), max(n), count(*), sum(id) FROM {0}"
_UNION = (
    "SELECT min(n), max(n), count(*), sum(id) FROM (SELECT n, id FROM {0} UNION ALL SELECT n, id FROM {1})"
)
_JOIN = (
    "SELECT min(a.n), max(b.n), count(*), sum(a.id), max(a.n), min(b.n) FROM {0} a JOIN {1} b ON a.id = b.id"
)
_QUERIES = (
    *((_ONE, (table,), 1) for table in TABLES), (_UNION, GROUP, 2), (_JOIN, GROUP, 1), (_JOIN, GROUP, 1),
)  # fmt: skip
_REFUSALS = {
    "start": {"LEASE_HELD", "FROM_ALREADY_REPLACED", "FROM_NOT_VISIBLE"},
    "upload": {"LINEAGE_ENTRY_REVERTED", "EXCLUSIVE_PUSH", "NOT_RESERVED"},
    "end": {"ENTRY_REVERTED", "ENTRY_NOT_FOUND", "TO_NOT_UPLOADED"},
    "revert": {"REVERT_SOURCE_GONE", "REVERT_CONSUMED_BY"},
}
"""What a pusher may be told because of the other one, or of retention."""


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
            "retention": {"frequency": "1s", "initial_delay": "0s"},
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
            return self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            # Makes it say where it hangs.
            self.process.send_signal(signal.SIGABRT)
            return self.process.wait()

    def said(self) -> str:
        path = self.folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""


@dataclass
class _Told:
    """What threads of the run have counted, each its own."""

    counts: Counter[str] = field(default_factory=Counter)
    answers: list[Answer] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)


class PushLoad:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, *, seed: int, seconds: float) -> None:
        self.folder = folder
        self._seed = seed
        self._seconds = seconds
        self._shared = folder / "data"
        self.servers = [Server(name, folder / name) for name in ("survivor", "restarted", "killed")]
        self._numbers = itertools.count(1)
        self._told: list[_Told] = []
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
        acts: list[Callable[[random.Random, _Told], None]] = [self._restart, self._kill, self._retain]
        acts += [_Client(self, number).run for number in range(CLIENTS)]
        acts += [_Pusher(self).run for _ in range(PUSHERS)]
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

    def _guarded(self, number: int, act: Callable[[random.Random, _Told], None]) -> None:
        told = _Told()
        self._told.append(told)
        try:
            act(random.Random(f"{self._seed} {number}"), told)
        except Exception:  # noqa: BLE001  # whatever it was, the run has failed
            self.violations.append(f"an act failed: {traceback.format_exc()}")
            self._is_over.set()

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                self.violations.append(complaint)
                return
            time.sleep(0.05)

    # Blows

    def _restart(self, chance: random.Random, _told: _Told) -> None:
        while not self._is_over.wait(chance.uniform(1, 4)):
            self._stopped(self.servers[1])
            self._come_back(self.servers[1], chance)
            self._blows["restarts"] += 1

    def _kill(self, chance: random.Random, _told: _Told) -> None:
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

    def _retain(self, chance: random.Random, told: _Told) -> None:
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
        told = _Told()
        self._told.append(told)
        caller = Caller(self, self.servers, told)
        for table in TABLES:
            for path, document in (("/schemas", _schema(table)), ("/tables", _table(table))):
                answer, _ = caller.call("POST", path, chance, json=document)
                assert answer.status_code == 200, answer.text
        pusher = _Pusher(self)
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
                state = catalog.load(typed_name(table))
                check_chain(catalog.metastore, state.table, state.push)
                audit = read_audit(catalog.metastore, state.table, limit=1_000_000)
                found[table] = TableHistory(tuple(reversed(audit)), state.lineage)
            return found

    def _is_tidy(self) -> bool:
        """Whether retention has left the retained snapshots, and no other file."""
        for table in TABLES:
            httpx2.post(
                f"{self.servers[0].controller_url}/periodictask/run", params=_task(table), timeout=_PATIENCE_S
            ).raise_for_status()
        return not any(self.surplus().values())

    def surplus(self) -> dict[str, list[str]]:
        """By table, what storage holds beyond the retained snapshots, and what it lacks of them."""
        deep_store = DeepStore(open_store(location_of(str(self._shared / "segments"))))
        with self.opened() as catalog:
            return {table: self._surplus(catalog, deep_store, typed_name(table)) for table in TABLES}

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


class Caller:
    """Calls one process or another; who gets no answer asks the next."""

    def __init__(self, load: PushLoad, servers: list[Server], told: _Told) -> None:
        self._load = load
        self._servers = servers
        self._told = told
        self._http = httpx2.Client(timeout=_PATIENCE_S)

    def call(
        self, method: str, path: str, chance: random.Random, **more: Any
    ) -> tuple[httpx2.Response, bool]:
        """The answer, and whether an earlier attempt went without one."""
        is_repeat = False
        while True:
            server = chance.choice([one for one in self._servers if one.is_up])
            answer = self.ask(server, method, server.controller_url + path, **more)
            if answer is not None:
                return answer, is_repeat
            is_repeat = True

    def ask(self, server: Server, method: str, url: str, **more: Any) -> httpx2.Response | None:
        """None if the process was stopped or killed meanwhile."""
        life = server.life
        server.asked.add(threading.get_ident())
        try:
            answer = self._http.request(method, url, **more)
            if answer.status_code < 500:
                return answer
            failure = f"{answer.status_code} {answer.text}"
        except httpx2.TransportError as error:
            failure = repr(error)
        finally:
            server.asked.discard(threading.get_ident())
        if server.life == life and server.is_up:
            self._load.violations.append(f"{server.name} failed: {method} {url}: {failure}")
        self._told.counts["unanswered"] += 1
        return None

    def refused(self, call: str, answer: httpx2.Response) -> None:
        code = answer.json().get("errorCode", "")
        self._told.refusals[call, code] += 1
        if code not in _REFUSALS.get(call, ()):
            self._load.violations.append(f"{call} was refused: {answer.status_code} {answer.text}")


class _Client:
    """Asks both brokers, and never for less than it has seen."""

    def __init__(self, load: PushLoad, number: int) -> None:
        self._load = load
        self._number = number
        self._seen: dict[str, int] = {}

    def run(self, chance: random.Random, told: _Told) -> None:
        caller = Caller(self._load, self._load.servers, told)
        while not self._load.is_over:
            server = chance.choice([one for one in self._load.servers[:2] if one.is_up])
            sql, tables, times = chance.choice(_QUERIES)
            asked = {table: self._seen[table] for table in tables if table in self._seen}
            document = self._asked(caller, server, sql.format(*tables), asked)
            if document is None:
                continue
            answer = self._answer(server, document, asked, times)
            told.answers.append(answer)
            for table, epoch in answer.epochs.items():
                self._seen[table] = max(epoch, self._seen.get(table, 0))

    def _asked(
        self, caller: Caller, server: Server, sql: str, asked: Mapping[str, int]
    ) -> dict[str, Any] | None:
        life = server.life
        needed = ",".join(f"{table}:{epoch}" for table, epoch in asked.items())
        options = f"timeoutMs={_PATIENCE_S * 1000}" + (f";minSnapshotEpoch={needed}" if needed else "")
        body = {"sql": sql, "queryOptions": options}
        answer = caller.ask(server, "POST", f"{server.broker_url}/query/sql", json=body)
        if answer is None:
            return None
        document: dict[str, Any] = answer.json()
        if answer.status_code == 200 and not document["exceptions"]:
            return document
        if server.life == life:
            self._load.violations.append(f"{server.name} failed: {answer.status_code} {answer.text}")
        return None

    def _answer(
        self, server: Server, document: Mapping[str, Any], asked: Mapping[str, int], times: int
    ) -> Answer:
        least, greatest, rows, total, *others = (int(value) for value in document["resultTable"]["rows"][0])
        return Answer(
            client=self._number,
            broker=server.name,
            epochs=document["snapshotEpochs"],
            asked=asked,
            least=min(least, *others) if others else least,
            greatest=max(greatest, *others) if others else greatest,
            rows=rows,
            total=total,
            times=times,
        )


class _Pusher:
    """Starts, uploads, ends and sometimes reverts, as fast as it is answered."""

    def __init__(self, load: PushLoad) -> None:
        self._load = load

    def run(self, chance: random.Random, told: _Told) -> None:
        caller = Caller(self._load, self._load.servers, told)
        while not self._load.is_over:
            self.push(chance.choice(TARGETS), chance, caller, told)

    def push(
        self,
        tables: tuple[str, ...],
        chance: random.Random,
        caller: Caller,
        told: _Told,
        *,
        is_plain: bool = False,
    ) -> bool:
        """One push of one or several tables, in which all may go wrong; whether it was published."""
        number = self._load.next_number()
        is_forced = not is_plain and chance.random() < 0.3
        entries: dict[str, str] = {}
        for table in tables:
            entry = self._started(table, number, chance, caller, force=is_forced)
            if entry is None:
                return False
            entries[table] = entry
        if not is_plain and chance.random() < _SLOW:
            # Long enough for retention to have forgotten it, if the other one takes over.
            time.sleep(chance.uniform(0, 2))
        if not all(self._uploaded(table, number, chance, caller) for table in tables):
            return False
        if not is_plain and chance.random() < 0.05:
            return False  # As if it had died.
        if not self._switched("end", entries, chance, caller, told):
            return False
        told.counts["pushes"] += 1
        told.counts["groups"] += len(tables) > 1
        if not is_plain and chance.random() < 0.3:
            told.counts["reverts"] += self._switched("revert", entries, chance, caller, told)
        return True

    def _started(
        self, table: str, number: int, chance: random.Random, caller: Caller, *, force: bool
    ) -> str | None:
        listed, _ = caller.call(
            "GET", f"/segments/{table}", chance, params={"type": "OFFLINE", "excludeReplacedSegments": True}
        )
        names = [segment_name(table, number, part) for part in range(parts_of(number))]
        answer, _ = caller.call(
            "POST", f"/segments/{table}/startReplaceSegments", chance,
            params={"type": "OFFLINE", "forceCleanup": force},
            headers={"X-Lineage-Status": "precise", "Idempotency-Key": f"{table}-{number}"},
            json={"segmentsFrom": listed.json()[0]["OFFLINE"], "segmentsTo": names},
        )  # fmt: skip
        if answer.status_code != 200:
            caller.refused("start", answer)
            return None
        entry: str = answer.json()["segmentLineageEntryId"]
        return entry

    def _uploaded(self, table: str, number: int, chance: random.Random, caller: Caller) -> bool:
        for part in range(parts_of(number)):
            answer, _ = caller.call(
                "POST", "/v2/segments", chance, params={"tableName": table},
                headers={"X-Lineage-Status": "precise"},
                files={"file": (segment_name(table, number, part), _parquet(number, part))},
            )  # fmt: skip
            if answer.status_code != 200:
                caller.refused("upload", answer)
                return False
        return True

    def _switched(
        self, verb: str, entries: Mapping[str, str], chance: random.Random, caller: Caller, told: _Told
    ) -> bool:
        headers = {"X-Lineage-Status": "precise"}
        if len(entries) > 1:
            body = [{"table": t, "segmentLineageEntryId": entry} for t, entry in entries.items()]
            answer, is_repeat = caller.call(
                "POST", f"/lineage/group/{verb}", chance, json=body, headers=headers
            )
        else:
            ((table, entry),) = entries.items()
            params: dict[str, Any] = {"type": "OFFLINE", "segmentLineageEntryId": entry}
            if verb == "end":
                params["cleanup"] = chance.random() < 0.1
                params["waitForBrokers"] = chance.random() < 0.05
            answer, is_repeat = caller.call(
                "POST", f"/segments/{table}/{verb}ReplaceSegments", chance, params=params, headers=headers
            )
        if answer.status_code != 200:
            caller.refused(verb, answer)
            return False
        state = "COMPLETED" if verb == "end" else "REVERTED"
        for table, entry in entries.items():
            epoch = (
                answer.json()["tables"][typed_name(table)]["epoch"]
                if len(entries) > 1
                else answer.headers["X-Snapshot-Epoch"]
            )
            told.switches.append(
                Switch(table=table, entry=entry, state=state, epoch=int(epoch), is_repeat=is_repeat)
            )
        return True


def _is_queryable(server: Server, table: str) -> bool:
    answer = httpx2.post(f"{server.broker_url}/query/sql", json={"sql": f"SELECT count(*) FROM {table}"})
    document = answer.json()
    return not document["exceptions"] and document["resultTable"]["rows"][0][0] > 0


def _parquet(number: int, part: int) -> bytes:
    """The rows of one segment: every so manyth of the snapshot's."""
    ids = range(part, rows_of(number), parts_of(number))
    table = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([number] * len(ids), pa.int64())})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


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


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


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
