"""The configuration file of the service."""

import datetime as dt
import ipaddress
from dataclasses import replace

import pytest

from holdfast.config.push_rules import PINOT, Rules
from holdfast.config.server import Listener, Role, ServerSettings, Tls, User, load_settings
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.push.metastore.open import open_metastore

HASH = "scrypt$16384$8$1$AAAA$BBBB"


@pytest.fixture
def load(tmp_path):
    def load(text):
        (tmp_path / "serve.yaml").write_text(text)
        return load_settings(tmp_path / "serve.yaml")

    return load


def test_without_a_file_everything_has_a_default_and_data_is_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    settings = load_settings(None)

    assert settings.store == f"sqlite:///{tmp_path}/holdfast-data/push.db"
    assert settings.deep_store == f"{tmp_path}/holdfast-data/segments"
    assert (settings.controller, settings.broker) == (Listener(port=9000), Listener(port=8099))
    assert settings.cluster == "PinotCluster"
    assert not settings.has_auth


def test_an_empty_file_means_the_defaults(load):
    assert load("").controller.port == 9000


def test_every_key_is_read(load, tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_TOKEN_HASH", f"{HASH}\n")
    settings = load(f"""
cluster: Staging
store: sqlite:///state/push.db
deep_store: segments
controller: {{host: 127.0.0.1, port: 9100}}
broker: {{port: 0}}
retention: {{frequency: 1h, initial_delay: 5s}}
engine: duckdb
delete_lock: false
auth:
  users:
    - {{name: ana, password: {HASH}, role: admin}}
    - {{name: job, token: "env:JOB_TOKEN_HASH", tables: {{orders: write, "*": read}}, expires: 2030-01-02}}
limits:
  query_timeout: 30s
  query_memory: 2G
  query_rows: 500
  concurrent_queries: 3
  queries_per_user: 2
  answer_size: 32M
  answer_timeout: 6s
  handshake_timeout: 2s
  list_body_size: 8M
  bodies_size: 24M
  upload_rate: 4K
  query_body_size: 64K
  header_timeout: 3s
  body_timeout: 4s
  connections_per_address: 7
  staged_size: 20G
  body_size: 1M
  upload_size: 10G
  json_depth: 20
  requests_per_second: 50
  failed_logins_per_minute: 4
downloads: {{roots: [staging], hosts: ["Files.example:8080"], networks: [10.0.0.0/8]}}
tls: {{certificate: c.pem, key: k.pem, required: true}}
""")

    assert settings.cluster == "Staging"
    assert settings.store == f"sqlite:///{tmp_path}/state/push.db"
    assert settings.deep_store == f"{tmp_path}/segments"
    assert (settings.controller.port, settings.broker.port) == (9100, 0)
    assert settings.retention_frequency_ms == 3_600_000
    assert settings.retention_initial_delay_ms == 5_000
    assert settings.rules == Rules(locks_deletes=False)
    ana, job = settings.users
    assert (ana.name, dict(ana.roles), ana.is_token) == ("ana", {"*": Role.ADMIN}, False)
    assert (job.secret_hash, job.is_token) == (HASH, True)
    assert dict(job.roles) == {"orders": Role.WRITE, "*": Role.READ}
    assert job.expires_at == dt.datetime(2030, 1, 2, tzinfo=dt.UTC)
    assert (settings.limits.query_timeout_ms, settings.limits.query_memory_bytes) == (30_000, 2 << 30)
    assert (settings.limits.body_bytes, settings.limits.upload_bytes) == (1 << 20, 10 << 30)
    assert (settings.limits.queries_per_user, settings.limits.answer_bytes) == (2, 32 << 20)
    assert (settings.limits.query_body_bytes, settings.limits.staged_bytes) == (64 << 10, 20 << 30)
    assert (settings.limits.header_timeout_ms, settings.limits.body_timeout_ms) == (3_000, 4_000)
    assert settings.limits.connections_per_address == 7
    assert (settings.limits.answer_timeout_ms, settings.limits.handshake_timeout_ms) == (6_000, 2_000)
    assert (settings.limits.list_body_bytes, settings.limits.bodies_bytes) == (8 << 20, 24 << 20)
    assert settings.limits.upload_rate_bytes == 4 << 10
    assert (settings.limits.json_depth, settings.limits.failed_logins_per_minute) == (20, 4)
    assert settings.downloads.roots == (f"{tmp_path}/staging",)
    assert settings.downloads.hosts == ("files.example:8080",)
    assert settings.downloads.networks == (ipaddress.ip_network("10.0.0.0/8"),)
    assert settings.tls.certificate == f"{tmp_path}/c.pem"


def test_rules_are_switched_off_one_by_one_or_all_at_once(load):
    assert load("cluster: x").rules == Rules()
    assert load("rules: {keeps_reverted: false}").rules == Rules(keeps_reverted=False)
    assert load("rules: {pinot: true}").rules == PINOT
    assert load("rules: {pinot: true, times_rise: true}").rules == replace(PINOT, times_rise=True)
    assert load("{rules: {pinot: true}, delete_lock: false}").rules == replace(PINOT, locks_deletes=False)


def test_an_absolute_path_stays_and_an_odd_one_is_quoted(load):
    assert load("store: sqlite:////var/push db.sqlite").store == "sqlite:////var/push%20db.sqlite"
    assert load("store: zookeeper://zk:2181").store == "zookeeper://zk:2181"


@pytest.mark.parametrize("engine", ["local[2]", "spark://h:7077", "sc://h:15002"])
def test_spark_is_for_readers_who_are_trusted(load, engine):
    users = f"auth: {{users: [{{name: a, password: {HASH}, role: read}}]}}"

    assert load(f'engine: "{engine}"').engine == engine, "who is on this machine needs no login"
    for text in (users, f"{users}\nreaders_are_trusted: false"):
        with pytest.raises(InvalidOption, match="share the memory and the cores of Spark"):
            load(f'engine: "{engine}"\n{text}')
    assert load(f'engine: "{engine}"\n{users}\nreaders_are_trusted: true').engine == engine
    assert load(users).engine == "duckdb"


@pytest.mark.parametrize("servers", ["h:notaport", "h:70000", "h:0", "", "h:1,,i", "h:21:81", "a b:1"])
def test_an_address_of_zookeeper_names_servers_and_is_not_shown(load, servers):
    with pytest.raises(InvalidOption, match="not the servers of ZooKeeper") as refused:
        load(f'store: "zookeeper://u:canary@{servers}/path"')
    assert "canary" not in str(refused.value)

    with pytest.raises(InvalidRequest) as refused:
        open_metastore(f"zookeeper://u:canary@{servers}/path")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("servers", ["h", "h:2181,i-1.example:2182", "[::1]:2181", "u:p%40@h:1"])
def test_servers_of_zookeeper_may_have_ports_and_a_login(load, servers):
    assert load(f'store: "zookeeper://{servers}/path"').store == f"zookeeper://{servers}/path"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clusster: x", "did you mean cluster?"),
        ("controller: {prt: 1}", "did you mean port?"),
        ("limits: {query_timeot: 1s}", "did you mean query_timeout?"),
        (f"auth: {{users: [{{name: a, pasword: {HASH}, role: read}}]}}", "did you mean password?"),
        ("tls: {zzz: 1}", "known: certificate, key, required"),
        ("rules: {keep_reverted: false}", "did you mean keeps_reverted?"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(load, text, told):
    with pytest.raises(InvalidOption, match="unknown key") as refused:
        load(text)

    assert told in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "controller: [1]",
        "controller: {port: true}",
        "controller: {port: 70000}",
        "retention: {frequency: 0s}",
        "retention: {frequency: soon}",
        "limits: {query_memory: -1}",
        "limits: {json_depth: 1}",
        "engine: mysql",
        "store: mysql://x",
        "store: 'sqlite:///'",
        "cluster: a/b",
        "delete_lock: maybe",
        "downloads: {networks: [everything]}",
        "tls: {certificate: c.pem}",
        "auth: {users: []}",
        f"auth: {{users: [{{name: a, password: {HASH}}}]}}",
        "auth: {users: [{name: a, role: read}]}",
        f"auth: {{users: [{{name: a, password: {HASH}, token: {HASH}, role: read}}]}}",
        f"auth: {{users: [{{name: a, password: {HASH}, role: king}}]}}",
        f"auth: {{users: [{{name: 'a b', password: {HASH}, role: read}}]}}",
        f"auth: {{users: [{{name: a, password: {HASH}, role: read}}, {{name: a, token: x, role: read}}]}}",
        "auth: {users: [{name: a, password: 'env:NOT_THERE_AT_ALL', role: read}]}",
        "- a list",
        "{",
        "a: 1\na: 2",
        "cluster: &x y",
        "base: &b {port: 1}\ncontroller: *b",
        "cluster: !!python/object/apply:os.getcwd []",
    ],
)
def test_a_wrong_file_is_refused(load, text):
    with pytest.raises(InvalidOption):
        load(text)


def test_a_file_that_is_not_yaml_is_refused_without_quoting_its_lines(load):
    with pytest.raises(InvalidOption) as refused:
        load("auth: {users: [{name: ana, password: canary-9f2 role: admin}]\n")

    assert "canary" not in str(refused.value)
    assert "line: 1" in str(refused.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="cannot be read"):
        load_settings(tmp_path / "absent.yaml")


ANA = User(name="ana", secret_hash=HASH, is_token=False, roles={"*": Role.ADMIN})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "push.example.com"])
def test_an_address_that_others_reach_needs_users_and_tls(host):
    listener = Listener(port=9000, host=host)

    with pytest.raises(InvalidOption, match="needs users"):
        ServerSettings(controller=listener)
    with pytest.raises(InvalidOption, match="needs TLS"):
        ServerSettings(broker=listener, users=(ANA,))
    ServerSettings(controller=listener, users=(ANA,), tls=Tls(certificate="c", key="k"))
    ServerSettings(controller=listener, users=(ANA,), tls=Tls(is_required=False))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.53"])
def test_the_loopback_address_needs_nobody(host):
    ServerSettings(controller=Listener(port=1, host=host), broker=Listener(port=2, host=host))


def test_a_hash_is_not_in_the_text_of_its_user():
    assert HASH not in repr(ANA)


@pytest.mark.parametrize("table", ["orders_OFFLINE", "orders_REALTIME", "or/ders", "../x", "a b"])
def test_a_role_is_given_on_a_table_by_its_plain_name(load, table):
    with pytest.raises(InvalidOption):
        load(f"auth: {{users: [{{name: ana, password: {HASH}, tables: {{'{table}': read}}}}]}}")


def test_roles_on_names_that_differ_only_by_case_are_refused(load):
    with pytest.raises(InvalidOption, match="case"):
        load(f"auth: {{users: [{{name: ana, password: {HASH}, tables: {{orders: read, Orders: admin}}}}]}}")


def test_a_secret_in_the_place_of_the_store_is_not_shown(load, monkeypatch):
    monkeypatch.setenv("WRONG", "hunter2-is-the-password")

    with pytest.raises(InvalidOption) as caught:
        load("store: env:WRONG")

    assert "hunter2" not in str(caught.value)
