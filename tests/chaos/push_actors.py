"""Who loads the push service: query clients and pushers, and how they call it while processes die."""

from __future__ import annotations

import io
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from chaos.push_history import Answer, Switch, parts_of, rows_of, segment_name
from chaos.push_servers import PATIENCE_S, Server
from holdfast.config.push import name_with_type

GROUP = ("orders", "items")
"""Always switched in one call."""
TARGETS = (("stock",), ("prices",), GROUP)
TABLES = ("stock", "prices", *GROUP)
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


class Load(Protocol):
    """The run that they are part of."""

    servers: list[Server]
    violations: list[str]

    @property
    def is_over(self) -> bool: ...

    def next_number(self) -> int:
        """Of a snapshot; no two are alike."""


@dataclass
class Told:
    """What threads of the run have counted, each its own."""

    counts: Counter[str] = field(default_factory=Counter)
    answers: list[Answer] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)


class Caller:
    """Calls one process or another; who gets no answer asks the next."""

    def __init__(self, load: Load, servers: list[Server], told: Told) -> None:
        self._load = load
        self._servers = servers
        self._told = told
        self._http = httpx2.Client(timeout=PATIENCE_S)

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


class Client:
    """Asks both brokers, and never for less than it has seen."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._number = number
        self._seen: dict[str, int] = {}

    def run(self, chance: random.Random, told: Told) -> None:
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
        options = f"timeoutMs={PATIENCE_S * 1000}" + (f";minSnapshotEpoch={needed}" if needed else "")
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


class Pusher:
    """Starts, uploads, ends and sometimes reverts, as fast as it is answered."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def run(self, chance: random.Random, told: Told) -> None:
        caller = Caller(self._load, self._load.servers, told)
        while not self._load.is_over:
            self.push(chance.choice(TARGETS), chance, caller, told)

    def push(
        self,
        tables: tuple[str, ...],
        chance: random.Random,
        caller: Caller,
        told: Told,
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
        self, verb: str, entries: Mapping[str, str], chance: random.Random, caller: Caller, told: Told
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
                answer.json()["tables"][name_with_type(table)]["epoch"]
                if len(entries) > 1
                else answer.headers["X-Snapshot-Epoch"]
            )
            told.switches.append(
                Switch(table=table, entry=entry, state=state, epoch=int(epoch), is_repeat=is_repeat)
            )
        return True


def _parquet(number: int, part: int) -> bytes:
    """The rows of one segment: every so manyth of the snapshot's."""
    ids = range(part, rows_of(number), parts_of(number))
    table = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([number] * len(ids), pa.int64())})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
