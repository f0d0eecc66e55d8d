"""Tables for the console to show: a lake table with a rich history, and what is served from it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import holdfast
from harness.lake_pushes import PushedLake
from holdfast.config.catalog import Catalog
from holdfast.config.server import Limits, Listener, Role, ServerSettings, User
from holdfast.console.run import console_in_front, lake_site
from holdfast.console.run import serving_console as serve_alone
from holdfast.server.run import Running, serving
from holdfast.server.secrets import hash_secret

NAMES = ("reader", "writer", "operator", "admin")
FREE = Limits(requests_per_second=1_000_000, failed_logins_per_minute=1_000_000)
_CITIES = ("bergen", "oslo", "tromsø")


def rows(first: int, count: int, *, note: str = "", cities=_CITIES) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "city": [cities[number % len(cities)] for number in numbers],
            "fare": [round(7.5 + number % 40 * 1.25, 2) for number in numbers],
            "note": [note] * count,
            "ts": pa.array(numbers, pa.int64()),
        }
    )


def make_trips(folder: Path, name: str = "trips") -> holdfast.Table:
    """Inserts, an upsert, a savepoint, an undo, a delete, a clean: one of everything."""
    table = holdfast.create_table(
        str(folder / name), name="trips", record_key="id", partition_by="city", ordering="ts"
    )
    table.insert(rows(0, 120))
    table.upsert(rows(0, 40, note="corrected"))
    table.savepoint(user="ann", comment="before the fares were raised")
    table.upsert(rows(30, 60, note="raised"))
    table.undo()
    table.insert(rows(200, 60))
    for number in range(3):
        table.upsert(rows(10 * number, 10, note=f"round {number}"))
    table.clean(options={"hoodie.clean.commits.retained": "2"})
    table.delete(rows(200, 5))
    return table


def user(name: str, roles: Mapping[str, Role], *, is_token: bool = False) -> User:
    return User(name=name, secret_hash=str(hash_secret(f"{name}-secret")), is_token=is_token, roles=roles)


USERS = (
    *(user(name, {"*": role}) for name, role in zip(NAMES, Role, strict=True)),
    user("guest", {"elsewhere": Role.ADMIN}),
    user("robot", {"*": Role.READ}, is_token=True),
)


@contextmanager
def serving_console(folder: Path, tables: Mapping[str, str], **more) -> Iterator[Running]:
    """The push service with the console before it."""
    settings = ServerSettings(
        store=f"sqlite:///{folder}/push.db",
        deep_store=str(folder / "segments"),
        controller=Listener(port=0),
        broker=Listener(port=0),
        catalog=Catalog(tables=tables),
        limits=FREE,
        **more,
    )
    with serving(settings, front=console_in_front) as running:
        running.retention.stop()
        yield running


def push_orders(folder: Path, running: Running) -> PushedLake:
    """A lake table, served: three pushes, the last one reverted, and a commit that is not pushed."""
    lake = PushedLake(folder, running)
    for _ in range(3):
        lake.commit_and_push()
    answer = lake.served.revert(lake.entries[-1])
    assert answer.status_code == 200, answer.text
    lake.commit()
    return lake


@dataclass(frozen=True)
class Alone:
    controller_url: str


@contextmanager
def console_alone(tables: Mapping[str, str], **more) -> Iterator[Alone]:
    """The console as `holdfast console` starts it: no push service, and no users unless some are given."""
    with serve_alone(lake_site(tables, **more), port=0) as url:
        yield Alone(url)
