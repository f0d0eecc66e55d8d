"""Tables that Apache Hudi wrote, and ways to damage bytes."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness.hudi_fixtures import FOLDERS, HudiFixtures
from harness.tiers import TIER, Tier, choose, read_table

HUDI_TABLES = (
    "cow_v6_empty",
    "cow_v6_nonpartitioned",
    "cow_v6_simplekeygen_hivestyle_no_metafields",
    "cow_v6_simplekeygen_nonhivestyle",
    "cow_v6_simplekeygen_nonhivestyle_overwritetable",
    "cow_v6_timebasedkeygen_nonhivestyle",
    "mor_avro_v6_trips_8i1u",
    "mor_parquet_v6_complexkeygen_hivestyle",
    "mor_parquet_v6_empty",
    "mor_parquet_v6_nonpartitioned",
    "mor_parquet_v6_simplekeygen_hivestyle_no_metafields",
    "mor_parquet_v6_simplekeygen_nonhivestyle",
    "mor_parquet_v6_simplekeygen_nonhivestyle_overwritetable",
)

_FLIPS = 3000

# A slow machine is no failure: no example has a deadline.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session", params=FOLDERS)
def hudi_fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HudiFixtures:
    """Unpacks a fresh copy of a table that Apache Hudi wrote, and knows its rows."""
    return HudiFixtures(FOLDERS[request.param], lambda: tmp_path_factory.mktemp("hudi"))


@pytest.fixture(scope="session")
def readers():
    """The processes that read statements, for all brokers of a run: starting them takes a while."""
    from holdfast.push.queries.readers import StatementReaders

    started = StatementReaders()
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="session", params=HUDI_TABLES)
def hudi_table(request: pytest.FixtureRequest, hudi_fixture: HudiFixtures) -> Path:
    """Each of the tables in turn. It is shared: read it, do not write into it."""
    return hudi_fixture(request.param)


@pytest.fixture(scope="session")
def damaged() -> Callable[[bytes], Iterator[bytes]]:
    """Every truncation of some bytes, then thousands of copies with a few wrong places."""

    def damage(content: bytes) -> Iterator[bytes]:
        for size in range(len(content)):
            yield content[:size]
        chance = random.Random(len(content))
        for _ in range(_FLIPS):
            copy = bytearray(content)
            for _ in range(chance.choice((1, 1, 2, 8))):
                at = chance.randrange(len(copy))
                copy[at] = chance.choice((copy[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0xFF))
            yield bytes(copy)
        for _ in range(_FLIPS // 10):
            at = chance.randrange(len(content))
            yield content[:at] + chance.randbytes(chance.randrange(12)) + content[at + chance.randrange(12) :]

    return damage


def pytest_configure(config):
    config.summary_lines = []


def pytest_collection_modifyitems(config, items):
    if TIER is Tier.ALL:
        return
    chosen, left = choose(items, TIER, read_table())
    items[:] = chosen
    config.hook.pytest_deselected(items=left)


def pytest_sessionfinish(session):
    """A worker of several sends its lines to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["summary_lines"] = session.config.summary_lines


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.summary_lines += getattr(node, "workeroutput", {}).get("summary_lines", [])


def pytest_terminal_summary(terminalreporter, config):
    for line in config.summary_lines:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def spark():
    """One Spark session for the whole run; a failed task is tried again, as on a cluster.

    It is the one that `SPARK_REMOTE` names, if it is set.
    """
    from pyspark.sql import SparkSession

    from holdfast.engines.spark.session import local_session

    is_remote = "SPARK_REMOTE" in os.environ
    builder = SparkSession.builder
    session = builder.getOrCreate() if is_remote else local_session("holdfast-tests", master="local[2,4]")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()
