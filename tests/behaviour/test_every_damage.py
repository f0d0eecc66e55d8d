"""Every file under `.hoodie`, damaged in every way, one at a time: right rows, or an error that is named.

`make test` takes a sample, and every deleted file; `make test-damage` takes all.
"""

import os
from dataclasses import dataclass

import pytest

from harness.damage import (
    answers,
    each_damage,
    has_error,
    is_clean,
    known_commits,
    rich_table,
    silent_changes,
)
from harness.tiers import by_tier
from harness.world import World
from holdfast.concurrency.locks.identity import IDENTITY_FILE
from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings
from holdfast.model.names import LEASE_FOLDER, META_FOLDER, PROPERTIES_BACKUP, ZONE_FILE
from holdfast.timeline import timeline

STRIDE = by_tier("HOLDFAST_DAMAGE_STRIDE", sample=200, full=40)
FLIPS = int(os.environ.get("HOLDFAST_DAMAGE_FLIPS", "4"))
KINDS = (
    "aborted",
    "archived-in-place",
    "checkpoint",
    "floor",
    "leases",
    "ledger",
    "plans",
    "pushes",
    "quarantine",
    "sources",
    "streams",
)
PARTS = 8
"""Each test takes one of so many parts, so that they can run at once."""


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    record: str
    """The record that this kind is about, which is damaged in every way."""
    zone: str | None = None
    lock: LockSettings | None = None
    stride: int = 1
    """Most files are as those of the first kind: so many times fewer damages do."""

    def make(self) -> World:
        return rich_table(self.zone, self.lock)


TABLES = {
    "UTC": Kind(LEASE_FOLDER),
    "LOCAL": Kind(ZONE_FILE, zone="Asia/Kolkata", stride=4),
    "LOCKED": Kind(IDENTITY_FILE, lock=LockSettings(provider=LockProvider.FILE), stride=4),
}


@pytest.fixture(scope="module", params=TABLES.values(), ids=TABLES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def table(kind):
    return kind.make()


@pytest.fixture(scope="module")
def moments(table, kind):
    return known_commits(table, kind.zone)


@pytest.fixture(scope="module")
def right(table, moments):
    return answers(table.copy(), moments)


@pytest.fixture(scope="module", autouse=True)
def tally(request):
    counted = {"damages": 0, "refused": 0}
    yield counted
    request.config.summary_lines.append(
        f"damage: {counted['damages']} single damages, {counted['refused']} met by a named error, 0 silent"
    )


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Nobody finishes a file that is damaged."""
    monkeypatch.setattr(timeline, "sleep", lambda _seconds: None)


def chosen(table, kind, part):
    """The damages of one part: every deletion, all of the smallest records, one in so many of the others."""
    damages = list(each_damage(table, flips=FLIPS))
    wholly = [damage for damage in damages if damage.path.startswith((kind.record, PROPERTIES_BACKUP))]
    rest = [damage for damage in damages if damage not in wholly]
    deleted = [damage for damage in rest if damage.content is None]
    others = [damage for damage in rest if damage.content is not None]
    picked = [*wholly, *deleted[:: kind.stride], *others[:: STRIDE * kind.stride]]
    return picked[part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_damage_is_silent(table, kind, moments, right, tally, part):
    for damage in chosen(table, kind, part):
        world = damage.apply(table)
        seems_clean = is_clean(world)
        told = answers(world, moments)

        assert silent_changes(right, told) == [], damage
        new_errors = {ask: answer for ask, answer in told.items() if answer != right[ask]}
        assert not (has_error(new_errors) and seems_clean), f"{damage}: verify finds nothing"
        tally["damages"] += 1
        tally["refused"] += has_error(new_errors)


@pytest.mark.parametrize("kind", [*KINDS, "zone"])
def test_the_damaged_tables_have_files_of_every_kind(kind):
    """A kind that is not there is never damaged."""
    table = TABLES["LOCAL"].make()

    assert any(path.startswith(f"{META_FOLDER}/.holdfast/{kind}") for path in table.store.paths(META_FOLDER))
