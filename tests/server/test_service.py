"""The process around the routes: limits, secrets, TLS, starting and stopping."""

import json
import logging
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from harness.certificates import make_certificate
from harness.push_client import Client, basic, make_table, parquet
from holdfast.clock import SystemClock
from holdfast.config.push_rules import PINOT
from holdfast.config.server import Limits, Listener, Role, Tls, User
from holdfast.errors import InvalidOption, InvalidRequest, StorageUnavailable
from holdfast.push.calls import Caller
from holdfast.push.metastore.open import open_metastore
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import BrokerEpochs
from holdfast.server.run import serving
from holdfast.server.secrets import hash_secret
from server.conftest import settings

CANARY = "canary-5b1e7f"


def test_bodies_beyond_the_limits_are_refused_and_leave_nothing(serve):
    client = Client(
        serve(limits=Limits(body_bytes=2000, list_body_bytes=2000, upload_bytes=3000, json_depth=5))
    )
    table = make_table(client)
    before = client.records()

    large = table.start([], [f"segment-{number}" for number in range(300)])
    assert (large.status_code, large.json()["errorCode"]) == (413, "BODY_TOO_LARGE")
    deep = client.post("/schemas", [[[[[[[[]]]]]]]])
    assert (deep.status_code, deep.json()["errorCode"]) == (400, "JSON_TOO_DEEP")
    file = client.call(
        "POST", "/v2/segments", params={"tableName": table.name}, files={"f": ("s", bytes(5000))}
    )
    assert (file.status_code, file.json()["errorCode"]) == (413, "BODY_TOO_LARGE")

    def chunks():
        for _ in range(50):
            yield b" " * 100

    unannounced = client.call("POST", "/schemas", content=chunks())
    assert unannounced.status_code == 413
    assert client.records() == before


def test_a_caller_that_asks_too_often_is_told_to_wait(serve):
    client = Client(serve(limits=Limits(requests_per_second=5)))

    answers = [client.get("/tables") for _ in range(30)]

    refused = [one for one in answers if one.status_code == 429]
    assert refused
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["errorCode"] == "TOO_MANY_REQUESTS"
    assert answers[0].status_code == 200


def test_guessing_a_password_is_stopped(serve):
    ana = User(name="ana", secret_hash=str(hash_secret("right")), is_token=False, roles={"*": Role.READ})
    running = serve(users=(ana,), limits=Limits(failed_logins_per_minute=3))
    guess = Client(running, basic("ana", "wrong"))

    assert [guess.get("/tables").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    assert Client(running, basic("ana", "right")).get("/tables").status_code == 429


def test_more_queries_than_places_wait_or_are_turned_away(serve):
    client = Client(serve(limits=Limits(concurrent_queries=1)))

    with ThreadPoolExecutor(30) as threads:
        answers = list(
            threads.map(
                lambda _: client.call("POST", "/query/sql", broker=True, json={"sql": "SELECT 1"}), range(40)
            )
        )

    statuses = {one.status_code for one in answers}
    assert 200 in statuses
    assert statuses <= {200, 429}
    turned_away = [one.json() for one in answers if one.status_code == 429]
    assert all(one["numServersQueried"] == 0 for one in turned_away)


def test_no_secret_is_logged_told_or_kept(serve, caplog, tmp_path):
    """Passwords, tokens and what was sent as one, right and wrong, on every path that a request can take."""
    users = (
        User(name="ana", secret_hash=str(hash_secret(CANARY)), is_token=False, roles={"*": Role.ADMIN}),
        User(name="job", secret_hash=str(hash_secret(CANARY)), is_token=True, roles={"*": Role.WRITE}),
    )
    caplog.set_level(logging.DEBUG)
    running = serve(users=users)
    told = []
    table = make_table(Client(running, basic("ana", CANARY)))
    for headers in (
        basic("ana", CANARY),
        basic("eve", CANARY),
        basic("ana", CANARY + "x"),
        {"Authorization": f"Bearer job.{CANARY}"},
        {"Authorization": f"Bearer {CANARY}"},
        {"Authorization": CANARY},
    ):
        client = Client(running, headers)
        told += [
            client.get("/tables"),
            client.get("/nothing"),
            client.get("/metrics"),
            client.get(f"/segments/{table.name}/lineage"),
            client.post("/tables", {"tableName": 7}),
            client.call("POST", "/query/sql", broker=True, json={"sql": "SELECT"}),
            client.post(
                f"/segments/{table.name}/startReplaceSegments", {"segmentsTo": ["a"]}, type="OFFLINE",
                headers={"X-Lease-Token": CANARY},
            ),
            client.get(f"/segments/{table.name}/lineage/audit"),
        ]  # fmt: skip

    for answer in told:
        assert CANARY not in answer.text + str(answer.headers)
    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "http.answered" in logged
    assert CANARY not in logged
    assert CANARY not in repr(running)
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert CANARY.encode() not in kept


def test_a_bug_is_500_with_an_id_and_without_its_text(running, client, caplog):
    class Broken(dict):
        def get(self, *_):
            raise RuntimeError(CANARY)

    controller = client.running.service.controller
    original = controller.views.state
    try:
        controller.views.state = Broken().get
        answer = client.get("/segments/x/lineage", type="OFFLINE")
    finally:
        controller.views.state = original

    assert answer.status_code == 500
    assert answer.json()["errorCode"] == "INTERNAL"
    assert CANARY not in answer.text
    assert any(vars(one).get("request_id") == answer.json()["requestId"] for one in caplog.records)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_tls_is_spoken_and_plain_http_is_not(serve, tmp_path):
    tls = make_certificate(tmp_path)
    ana = User(name="ana", secret_hash=str(hash_secret("pw")), is_token=False, roles={"*": Role.READ})

    running = serve(controller=Listener(port=0, host="0.0.0.0"), users=(ana,), tls=tls)

    port = int(running.controller_url.rpartition(":")[2])
    assert running.controller_url.startswith("https://")
    context = ssl.create_default_context(cafile=tls.certificate)
    with httpx2.Client(verify=context) as http_client:
        answer = http_client.get(f"https://127.0.0.1:{port}/tables", headers=basic("ana", "pw"))
    assert answer.status_code == 200
    old = ssl.create_default_context(cafile=tls.certificate)
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port)) as plain, pytest.raises((ssl.SSLError, OSError)):
        old.wrap_socket(plain, server_hostname="127.0.0.1")
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"http://127.0.0.1:{port}/health")


def test_a_key_that_everybody_can_read_is_refused_before_anything_is_made(tmp_path):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_text("")
    key.write_text("")
    key.chmod(0o644)
    tls = Tls(certificate=str(certificate), key=str(key))

    with pytest.raises(InvalidOption, match="everybody") as refused, serving(settings(tmp_path, tls=tls)):
        pass

    assert f"chmod 600 {key}" in str(refused.value)
    assert not (tmp_path / "segments").exists()


def test_what_the_service_keeps_is_its_owners_alone(serve, tmp_path):
    make_table(Client(serve())).push([], ["a"])

    kept = [tmp_path / "segments", *(tmp_path / "segments").rglob("*")]
    assert any(path.suffix == ".parquet" for path in kept)
    assert kept[0].stat().st_mode & 0o077 == 0, "nobody else comes past the folder"


def test_a_port_that_is_taken_is_told_before_anything_is_made(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with (
            pytest.raises(InvalidRequest, match="port cannot be had"),
            serving(settings(tmp_path / "data", broker=Listener(port=port))),
        ):
            pass
    assert not (tmp_path / "data").exists()


def test_what_was_pushed_is_there_after_a_restart_and_no_thread_is_left(tmp_path):
    before = set(threading.enumerate())
    with serving(settings(tmp_path)) as running:
        table = make_table(Client(running), "kept")
        entry = table.push([], ["a"])

    with serving(settings(tmp_path)) as running:
        client = Client(running)
        assert client.get("/tables").json() == {"tables": ["kept"]}
        assert client.sql("SELECT count(*) FROM kept")["resultTable"]["rows"] == [[2]]
        listed = client.get("/segments/kept/lineage", type="OFFLINE").json()
        assert list(listed["lineageEntries"]) == [entry]
    left = [one.name for one in threading.enumerate() if one not in before and "AnyIO" not in one.name]
    assert not left


def test_stopping_lets_a_request_under_way_finish(tmp_path):
    with serving(settings(tmp_path)) as running:
        client = Client(running)
        table = make_table(client, "slow")
        entry = table.started([], ["a", "b"])
        table.upload("a")
        answers = []
        ending = threading.Thread(
            target=lambda: answers.append(
                client.call(
                    "POST", "/v2/segments", params={"tableName": "slow"},
                    files={"f": ("b", parquet(200_000, snapshot=1))},
                )
            )
        )  # fmt: skip
        ending.start()
        deadline = time.monotonic() + 20
        while running.service.bounds.calls.busy == 0 and ending.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)
    ending.join()

    assert [one.status_code for one in answers] == [200]
    with serving(settings(tmp_path)) as running:
        state = running.service.controller.views.state("slow_OFFLINE")
        assert state.segments == {"a", "b"}
        assert state.lineage.entries[0].id == entry


@pytest.mark.parametrize("way", ["revert", "rollback", "redo"])
def test_going_back_is_answered_when_the_last_broker_has_switched(tmp_path, way):
    ghost = open_metastore(f"sqlite:///{tmp_path}/push.db")
    with serving(settings(tmp_path)) as running:
        client = Client(running)
        table = make_table(client, "waiting", batch={"retainedSnapshots": 4})
        first = table.push([], ["a"])
        entry = table.push(["a"], ["b"])
        if way == "redo":
            table.revert(entry)
        before = table.visible()
        catalog = Catalog(ghost)
        behind = BrokerEpochs(epoch=0, applied=0)
        catalog.announce_epoch("waiting_OFFLINE", "Broker_ghost_1", behind)
        query = {
            "revert": {"segmentLineageEntryId": entry},
            "rollback": {"toEntryId": first},
            "redo": {"entryId": entry},
        }[way]
        path = f"/segments/waiting/{'revertReplaceSegments' if way == 'revert' else way}"
        answers = []
        waiting = threading.Thread(
            target=lambda: answers.append(
                client.post(path, type="OFFLINE", waitForBrokers=True, brokerTimeoutMs=60_000, **query)
            )
        )
        waiting.start()
        deadline = time.monotonic() + 30
        while table.visible() == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        assert answers == [], "a broker has not switched"
        catalog.announce_epoch("waiting_OFFLINE", "Broker_ghost_1", BrokerEpochs(epoch=99, applied=99))
        waiting.join(30)
        late = client.post(path, type="OFFLINE", waitForBrokers=True, brokerTimeoutMs=60_000, **query)
        catalog.announce_epoch("waiting_OFFLINE", "Broker_ghost_1", behind)
        impatient = client.post(path, type="OFFLINE", waitForBrokers=True, brokerTimeoutMs=100, **query)
    ghost.close()

    assert answers[0].status_code == 200, answers[0].text
    assert answers[0].json()["brokers"]["Broker_ghost_1"] == 99
    assert late.status_code == 200, "a repeat waits, too"
    assert impatient.json()["brokers"]["Broker_ghost_1"] == 0, "who does not wait longer is told who was late"


def test_stopping_ends_calls_that_only_wait(tmp_path):
    ghost = open_metastore(f"sqlite:///{tmp_path}/push.db")
    with serving(settings(tmp_path)) as running:
        client = Client(running)
        table = make_table(client, "waiting")
        Catalog(ghost).announce_epoch("waiting_OFFLINE", "Broker_ghost_1", BrokerEpochs(epoch=0, applied=0))
        entry = table.started([], ["a"])
        table.upload("a")
        answers = []
        waiting = threading.Thread(
            target=lambda: answers.append(table.end(entry, waitForBrokers=True, brokerTimeoutMs=600_000))
        )
        waiting.start()
        deadline = time.monotonic() + 30
        while table.states() != ["COMPLETED"] and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
    waiting.join()
    ghost.close()

    assert time.monotonic() - began < 20
    assert (answers[0].status_code, answers[0].json()["errorCode"]) == (504, "STOPPING")


class _Jumping(SystemClock):
    """A clock whose wall moves when it is told to; timers run as always."""

    ahead_ms = 0

    def now_ms(self):
        return super().now_ms() + self.ahead_ms


def test_retention_runs_by_itself(tmp_path):
    clock = _Jumping()
    quick = settings(tmp_path, retention_frequency_ms=100, retention_initial_delay_ms=0)
    with serving(quick, clock) as running:
        table = make_table(Client(running), "aging")
        table.upload("a")
        entry = table.started(["a"], ["b"])
        table.upload("b")
        clock.ahead_ms = 25 * 3_600_000

        deadline = time.monotonic() + 30
        while entry in table.entries() and time.monotonic() < deadline:
            time.sleep(0.05)

        assert table.entries() == {}
        assert table.segments() == {"a"}
        text = Client(running).get("/metrics").text
        assert 'holdfast_retention_runs_total{outcome="done"}' in text


def test_of_two_controllers_on_one_store_one_leads(tmp_path):
    with serving(settings(tmp_path)) as first, serving(settings(tmp_path)) as second:
        make_table(Client(first), "led")
        by = Caller(actor="test")

        reports = [
            one.service.controller.upkeep.run_retention_everywhere(by=by) for one in (first, second, first)
        ]

        asked = [
            Client(one).post("/periodictask/run", taskname="RetentionManager") for one in (first, second)
        ]

    assert [len(report) for report in reports] == [1, 0, 1]
    assert [len(answer.json()["reports"]) for answer in asked] == [1, 1], "who asks need not know who leads"


def test_with_pinots_rules_a_revert_deletes_at_once_and_is_not_repeated(serve):
    table = make_table(Client(serve(rules=PINOT)), "strict")
    table.push([], ["a"])
    entry = table.push(["a"], ["b"])

    assert table.revert(entry).status_code == 200
    again = table.revert(entry)

    assert (again.status_code, again.json()["errorCode"]) == (409, "ENTRY_REVERTED")
    assert table.segments() == {"a"}


def test_nothing_of_the_configuration_is_served(running, client):
    for path in ("/config", "/configs", "/cluster/configs", "/debug", "/users", "/appconfigs"):
        assert client.get(path).status_code == 404
    assert str(running.service.settings.deep_store) not in json.dumps(client.get("/openapi.json").json())


def test_the_service_does_not_start_beside_a_deep_store_that_has_nothing_of_its_tables(tmp_path):
    mine = settings(tmp_path)
    with serving(mine) as running:
        make_table(Client(running)).push([], ["a"])
    segments = Path(mine.deep_store)
    segments.rename(tmp_path / "elsewhere")

    with pytest.raises(StorageUnavailable, match="mount it"), serving(mine):
        raise AssertionError("it must not start")

    (tmp_path / "elsewhere").rename(segments)
    with serving(mine) as running:
        assert Client(running).get("/health").status_code == 200
