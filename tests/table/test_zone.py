"""Tables whose instants are in local time: which zone that is, and what cannot be right."""

import datetime as dt
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import holdfast
from harness.checker import check_at_rest, visible_ids
from harness.cleaning import clean
from harness.faults import InterruptedStore
from harness.foreign_writes import write_as_hudi
from harness.world import START_MS, SimulatedClock, memory_world, rows
from holdfast.clock import SystemClock
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.table import TIMELINE_ZONE
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, TableDamaged, UnknownInstant, UnsupportedTable
from holdfast.format.properties import SEALS
from holdfast.model.instant import time_at
from holdfast.model.names import CHECKPOINT_FOLDER, LEDGER_FOLDER, PROPERTIES_FILE, ZONE_FILE
from holdfast.model.reports import FindingKind, Severity
from holdfast.read.changes import changes
from holdfast.read.snapshot import snapshot
from holdfast.services.archive.archive import archive_instants
from holdfast.services.repair.repair import repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.table import zone as zone_module
from holdfast.table.archive import read_archive
from holdfast.timeline.ledger import Ledger
from holdfast.timeline.timeline import load_timeline

ZONES = ["America/New_York", "Asia/Kolkata", "UTC"]
HOUR_MS = 3_600_000


def world_in(zone, *, timezone="LOCAL", now=START_MS):
    world = memory_world()
    world.clock.zone, world.clock.now = zone, now
    world.create({TIMELINE_ZONE: timezone})
    return world


def moment(world):
    return dt.datetime.fromtimestamp(world.clock.now_ms() / 1000, dt.UTC)


def epoch_ms(text):
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def damages(world):
    return [finding.kind for finding in verify(world.open()).findings if finding.severity is Severity.DAMAGE]


@pytest.mark.parametrize("zone", ZONES)
def test_turns_with_a_writer_of_local_time_lose_no_row(zone):
    world = world_in(zone)
    times = []
    for turn in range(4):
        world.clock.now += 60_000
        keys = rows(f"hudi{turn}", city="paris")
        times.append(write_as_hudi(world, "upsert", keys, zone=zone))
        world.clock.now += 60_000
        times.append(world.write("upsert", rows(f"ours{turn}", city="paris")).instant)

    assert times == sorted(times)
    assert visible_ids(world.open()) == {f"{who}{turn}" for who in ("hudi", "ours") for turn in range(4)}
    assert damages(world) == []


@pytest.mark.parametrize("timezone", ["LOCAL", "UTC"])
@pytest.mark.parametrize("zone", ZONES)
def test_moments_mean_the_same_in_every_zone(zone, timezone):
    world = world_in(zone, timezone=timezone)
    first = world.insert("a")
    between = moment(world)
    world.clock.now += 10
    world.insert("b", city="rome")

    clock = ZoneInfo(zone) if timezone == "LOCAL" else dt.UTC
    assert first.instant.startswith(f"{between.astimezone(clock):%Y%m%d%H%M}")
    for given in (between, between.isoformat(), between.astimezone(clock).replace(tzinfo=None)):
        assert len(snapshot(world.open(), as_of=given).paths) == 1
        assert len(changes(world.open(), since=given).snapshot.paths) == 1
    assert len(snapshot(world.open(), as_of=moment(world)).paths) == 2


@pytest.mark.parametrize("zone", ZONES)
def test_undo_restore_and_clean_go_by_the_same_clock(zone):
    world = world_in(zone)
    world.insert("a")
    then = moment(world)
    world.insert("b")
    world.insert("c")
    report = undo(world.open())
    assert report.instant.startswith(time_at(world.clock.now, ZoneInfo(zone))[:12])

    assert restore(world.open(), then).instant.startswith(time_at(world.clock.now, ZoneInfo(zone))[:12])
    assert visible_ids(world.open()) == {"a"}
    check_at_rest(world.open())


@pytest.mark.parametrize("zone", ZONES)
def test_hours_to_retain_are_counted_on_the_tables_clock(zone):
    world = world_in(zone)
    for fare in range(4):
        world.write("upsert", rows("a", city="paris", fare=float(fare)))
        world.clock.now += 2 * HOUR_MS
    settings = CleanSettings(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours_retained=3)

    report = clean(world.open(), settings)

    # The versions of 8 and 6 hours ago are gone; that of 4 served until 2 hours ago.
    assert report is not None
    assert len(report.deleted) == 2


def test_the_first_writer_records_the_zone_for_all_others():
    world = world_in("America/New_York")
    first = world.insert("a").instant
    assert world.store.read(ZONE_FILE) == b"America/New_York\n"

    world.clock.zone = "Asia/Kolkata"
    second = world.insert("b").instant

    assert second[:10] == first[:10]
    assert world.store.read(ZONE_FILE) == b"America/New_York\n"


def test_a_table_in_utc_needs_no_record_and_no_zone():
    world = world_in(None, timezone="UTC")

    assert world.insert("a").instant == time_at(START_MS, dt.UTC)[:12] + world.commit_times()[0][12:]
    assert not world.store.stat(ZONE_FILE)


def test_a_zone_without_a_name_is_refused_before_anything_is_written():
    world = world_in(None)
    before = world.store.paths("")

    with pytest.raises(Refused, match=r"has no name.*TZ"):
        world.insert("a")
    assert world.store.paths("") == before


DAMAGED_RECORDS = [
    None,
    b"",
    b"Asia/Kolkat",
    b"Asia/Kolkata",
    b"Mars/Olympus\n",
    b"\xff\n",
    b"UTC\nUTC\n",
    b"/etc\n",
    b"America/New_York\n",
]
"""What the record of a table in Kolkata may become; None if it is deleted."""


def damage_record(world, content):
    world.store.delete(ZONE_FILE)
    if content is not None:
        world.store.create(ZONE_FILE, content)


@pytest.mark.parametrize("elsewhere", ["America/New_York", "UTC", None])
@pytest.mark.parametrize("content", DAMAGED_RECORDS)
def test_a_record_of_the_zone_that_is_damaged_is_named_and_changes_no_answer(content, elsewhere, caplog):
    """The ledger knows the zone, too; a process that runs elsewhere does not go by its own."""
    world = world_in("Asia/Kolkata")
    world.insert("a")
    between = moment(world)
    world.clock.now += 10
    world.insert("b", city="rome")
    damage_record(world, content)
    world.clock.zone = elsewhere

    assert len(snapshot(world.open(), as_of=between).paths) == 1
    assert len(snapshot(world.open(), as_of=moment(world)).paths) == 2
    (told,) = {record.file for record in caplog.records if record.message == "zone.wrong_record"}
    assert told == ZONE_FILE
    (finding,) = verify(world.open()).findings
    assert (finding.kind, finding.path) == (FindingKind.DISAGREEMENT, ZONE_FILE)
    assert "Asia/Kolkata" in finding.detail
    assert "repair" in finding.remedy


@pytest.mark.parametrize("content", DAMAGED_RECORDS)
@pytest.mark.parametrize("act", ["write", "repair"])
def test_a_damaged_record_of_the_zone_is_put_right_by_the_next_write_and_by_repair(act, content):
    world = world_in("Asia/Kolkata")
    world.insert("a")
    damage_record(world, content)
    world.clock.zone = "America/New_York"

    if act == "write":
        assert world.insert("b").instant.startswith(time_at(world.clock.now, ZoneInfo("Asia/Kolkata"))[:12])
    else:
        assert repair(world.open(), verify(world.open())).left == ()

    assert world.store.read(ZONE_FILE) == b"Asia/Kolkata\n"
    assert verify(world.open()).is_clean


def test_the_ledger_knows_the_zone_from_the_first_entry_on_and_in_every_checkpoint():
    world = world_in("Asia/Kolkata")
    world.checkpoint_after = 4
    world.die_after(lambda world: world.insert("a"), last=f"create {LEDGER_FOLDER}/{1:020d}")
    assert world.open().ledger.read().zone == "Asia/Kolkata"

    for number in range(6):
        world.insert(f"b{number}")
    world.store.delete(ZONE_FILE)
    world.clock.zone = "UTC"
    world.insert("c")

    assert world.store.paths(CHECKPOINT_FOLDER)
    assert world.store.read(ZONE_FILE) == b"Asia/Kolkata\n"


def test_a_table_whose_ledger_does_not_know_its_zone_yet_learns_it_from_the_record(monkeypatch):
    """As earlier releases left it."""
    world = world_in("Asia/Kolkata")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "note_zone", lambda self, name, *, over: None)
        world.insert("a")
    assert world.open().ledger.read().zone == ""
    world.clock.zone = "UTC"

    world.store.put(ZONE_FILE, b"Asia/Kolkat\n")
    with pytest.raises(TableDamaged, match=r"zone.*one line"):
        world.insert("b")
    assert [(f.kind, f.path) for f in verify(world.open()).findings] == [(FindingKind.TORN, ZONE_FILE)]
    world.store.put(ZONE_FILE, b"Asia/Kolkata\n")
    world.insert("b")

    assert world.open().ledger.read().zone == "Asia/Kolkata"


@pytest.mark.parametrize("corrected", [None, b"America/New_York\n"])
def test_a_zone_that_hudis_instants_contradict_is_corrected_by_deleting_or_changing_its_record(corrected):
    """A container in UTC wrote first. Hudi, in New York, comes after it."""
    world = world_in("UTC")
    world.insert("a", city="paris")
    world.clock.now += 6 * HOUR_MS
    write_as_hudi(world, "insert", rows("b", city="rome"), zone="America/New_York")
    world.clock.now += 60_000
    world.clock.zone = "America/New_York"
    with pytest.raises(Refused, match=r"another time zone.*delete"):
        world.insert("c")

    damage_record(world, corrected)
    world.insert("c", city="oslo")

    assert world.store.read(ZONE_FILE) == b"America/New_York\n"
    assert world.open().ledger.read().zone == "America/New_York"
    assert visible_ids(world.open()) == {"a", "b", "c"}
    world.clock.zone = "Asia/Kolkata"
    world.insert("d", city="oslo")
    assert verify(world.open()).is_clean


def test_a_zone_that_this_machine_does_not_know_is_refused_by_name(monkeypatch):
    world = world_in("Asia/Kolkata")
    world.insert("a")

    def unknown(name):
        raise KeyError(name)

    monkeypatch.setattr(zone_module, "ZoneInfo", unknown)
    with pytest.raises(Refused, match=r"Asia/Kolkata.*tzdata"):
        snapshot(world.open(), as_of=moment(world))


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_archives_tell_moments_by_the_ledger_where_the_record_is_damaged(content):
    world = world_in("Asia/Kolkata")
    for fare in range(1, 8):
        world.write("upsert", rows("a", city="paris", fare=float(fare)))
    settings = WriteSettings(clean=CleanSettings(commits_retained=1, keep_min=3, keep_max=4))
    archive_instants(world.open(), settings)
    before = read_archive(world.store).timeline.completed_commits
    damage_record(world, content)

    assert read_archive(world.store).timeline.completed_commits == before


def test_a_process_in_another_zone_than_hudi_is_refused():
    """In New York Hudi writes at 03:01; we are a container in UTC, where it is 08:02."""
    for zone, ours in (("America/New_York", "UTC"), ("UTC", "America/New_York"), ("Asia/Kolkata", "UTC")):
        world = world_in(ours)
        write_as_hudi(world, "insert", rows("a"), zone=zone)
        world.clock.now += 60_000

        with pytest.raises(Refused, match=r"another time zone.*TZ"):
            world.insert("b")
        with pytest.raises(Refused, match=r"another time zone.*TZ"):
            snapshot(world.open(), as_of=moment(world))
        assert visible_ids(world.open()) == {"a"}

        world.clock.zone = zone
        world.insert("b")
        assert visible_ids(world.open()) == {"a", "b"}


def test_a_copy_whose_files_are_younger_than_their_instants_says_nothing_about_the_zone():
    world = world_in("UTC")
    time = write_as_hudi(world, "insert", rows("a"), zone="UTC")
    world.clock.now += 5 * HOUR_MS + 7 * 60_000
    for path in (path for path in world.store.paths(".hoodie") if time in path):
        content = world.store.read(path)
        world.store.delete(path)
        world.store.create(path, content)

    world.insert("b")

    assert visible_ids(world.open()) == {"a", "b"}


@pytest.mark.parametrize("hours", [3, 5.5])
def test_a_copy_made_by_chance_whole_offsets_after_its_instants_says_nothing_about_the_zone(hours):
    world = world_in("UTC")
    write_as_hudi(world, "insert", rows("a"), zone="UTC")
    world.clock.now += int(hours * HOUR_MS)
    for path in world.store.paths(".hoodie"):
        content = world.store.read(path)
        world.store.delete(path)
        world.store.create(path, content)

    world.insert("b")

    assert visible_ids(world.open()) == {"a", "b"}


def test_a_copy_that_lives_on_elsewhere_notices_hudi_in_another_zone():
    world = world_in("UTC")
    write_as_hudi(world, "insert", rows("a"), zone="UTC")
    world.clock.now += 3 * HOUR_MS
    for path in world.store.paths(".hoodie"):
        content = world.store.read(path)
        world.store.delete(path)
        world.store.create(path, content)
    world.clock.now += 2 * HOUR_MS
    write_as_hudi(world, "insert", rows("b"), zone="Asia/Kolkata")

    with pytest.raises(Refused, match=r"another time zone.*TZ"):
        world.insert("c")


def test_what_hudi_wrote_into_the_past_is_named_by_verify_and_by_reads(caplog):
    """Ours at 08:02 in UTC, as earlier releases wrote it; Hudi's next at 03:03 in New York."""
    world = world_in("America/New_York")
    write_as_hudi(world, "insert", rows("a", city="paris"), zone="America/New_York")
    world.clock.now += 60_000
    write_as_hudi(world, "upsert", rows("b", city="paris"), zone="UTC")
    world.clock.now += 60_000
    lost = write_as_hudi(world, "upsert", rows("c", city="paris"), zone="America/New_York")

    assert visible_ids(world.open()) == {"a", "b"}
    (finding,) = [f for f in verify(world.open()).findings if f.kind is FindingKind.HIDDEN]
    assert finding.severity is Severity.DAMAGE
    assert finding.path.endswith(f"_{lost}.parquet")
    (warning,) = {record.file for record in caplog.records if record.message == "read.hidden_rows"}
    assert warning == finding.path


def test_a_writer_of_ours_that_ignored_the_zone_would_be_found(monkeypatch):
    """The defect of earlier releases, planted."""
    world = world_in("America/New_York")
    write_as_hudi(world, "insert", rows("a", city="paris"), zone="America/New_York")
    monkeypatch.setattr(zone_module, "timeline_zone", lambda table: dt.UTC)
    world.clock.now += 60_000
    world.write("upsert", rows("b", city="paris"))
    world.clock.now += 60_000
    write_as_hudi(world, "upsert", rows("c", city="paris"), zone="America/New_York")

    assert damages(world) == [FindingKind.HIDDEN]


def test_of_two_first_writers_in_two_zones_both_go_by_that_of_the_faster():
    world = world_in("America/New_York")
    elsewhere = replace(world, clock=_ElsewhereClock(world.clock, "Asia/Kolkata"))
    store = InterruptedStore(world.store, ZONE_FILE, lambda: elsewhere.insert("a", city="rome"))
    world.on(store).insert("b", city="paris")

    first, second = world.commit_times()
    assert world.store.read(ZONE_FILE) == b"Asia/Kolkata\n"
    assert first[:10] == second[:10] == time_at(START_MS, ZoneInfo("Asia/Kolkata"))[:10]
    assert visible_ids(world.open()) == {"a", "b"}


@dataclass(frozen=True)
class _ElsewhereClock:
    """The clock of a process in another zone."""

    here: SimulatedClock
    name: str

    def zone_name(self):
        return self.name

    def __getattr__(self, name):
        return getattr(self.here, name)


@pytest.mark.parametrize("zone", ZONES)
def test_archived_instants_tell_when_they_were_completed(zone):
    world = world_in(zone)
    for fare in range(1, 8):
        world.write("upsert", rows("a", city="paris", fare=float(fare)))
    before = {instant.time: instant.completed_at for instant in load_timeline(world.store).completed_commits}
    archive_instants(
        world.open(), WriteSettings(clean=CleanSettings(commits_retained=1, keep_min=3, keep_max=4))
    )

    archived = read_archive(world.store, world.open().settings).timeline.completed_commits
    assert archived
    assert {instant.time: instant.completed_at for instant in archived}.items() <= before.items()
    # As Hudi writes and reads it.
    (file,) = world.store.paths(".hoodie/archived")
    completed_ms = round(archived[0].completed_at.timestamp() * 1000)
    assert time_at(completed_ms, ZoneInfo(zone)).encode() in world.store.read(file)


def test_nothing_is_written_behind_an_instant_of_another_zone_until_the_clock_has_passed_it():
    world = world_in("America/New_York")
    world.insert("a", city="paris")
    write_as_hudi(world, "upsert", rows("b", city="paris"), zone="UTC")
    world.clock.now += 60_000
    write_as_hudi(world, "insert", rows("c", city="rome"), zone="America/New_York")
    world.clock.now += 60_000
    with pytest.raises(Refused, match="ahead of the table's clock"):
        world.insert("d", city="paris")

    world.clock.now += 5 * HOUR_MS
    world.insert("d", city="paris")

    assert visible_ids(world.open()) == {"a", "b", "c", "d"}


# A clock that is put back, and one that is put forward.


def test_through_the_hour_that_comes_twice_no_row_is_lost():
    """Hudi goes back with the clock; what it writes then must not lie before what is there."""
    world = world_in("America/New_York", now=epoch_ms("2026-11-01T00:50:00-04:00"))
    write_as_hudi(world, "insert", rows("a", city="paris"), zone="America/New_York")
    for minutes, key in ((15, "b"), (45, "c")):
        world.clock.now = epoch_ms("2026-11-01T01:00:00-04:00") + minutes * 60_000
        world.write("upsert", rows(key, city="paris"))
    world.clock.now = epoch_ms("2026-11-01T01:05:00-05:00")
    write_as_hudi(world, "upsert", rows("d", city="paris"), zone="America/New_York")
    world.clock.now = epoch_ms("2026-11-01T01:10:00-05:00")
    world.write("upsert", rows("e", city="paris"))

    assert visible_ids(world.open()) == set("abcde")
    assert world.commit_times() == sorted(world.commit_times())
    assert damages(world) == []


@pytest.mark.parametrize("offset", ["-04:00", "-05:00"])
def test_a_moment_in_the_hour_that_comes_twice_is_refused(offset):
    world = world_in("America/New_York", now=epoch_ms("2026-10-31T12:00:00-04:00"))
    instant = world.insert("a").instant
    world.clock.now = epoch_ms("2026-11-01T03:00:00-05:00")

    for given in (f"2026-11-01T01:30:00{offset}", dt.datetime.fromisoformat(f"2026-11-01T01:30:00{offset}")):
        with pytest.raises(UnknownInstant, match=r"twice.*name the instant"):
            snapshot(world.open(), as_of=given)
    for given in (instant, "2026-11-01T01:30:00", "20261101013000000", "2026-11-01T02:30:00-05:00"):
        assert len(snapshot(world.open(), as_of=given).paths) == 1


def test_a_clock_that_is_put_forward_changes_nothing():
    world = world_in("America/New_York", now=epoch_ms("2026-03-08T01:59:59-05:00"))
    world.insert("a")
    between = dt.datetime.fromisoformat("2026-03-08T03:00:00-04:00")
    world.clock.now = epoch_ms("2026-03-08T03:00:01-04:00")
    world.insert("b")

    assert len(snapshot(world.open(), as_of=between).paths) == 1
    assert [time[:12] for time in world.commit_times()] == ["202603080159", "202603080300"]


# The settings, and the zone of a real process.


def change_properties(world, old, new):
    """As the message says that somebody does who means it: without our checksums."""
    lines = world.store.read(PROPERTIES_FILE).decode().replace(old, new).splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(SEALS)]
    world.store.put(PROPERTIES_FILE, "".join(kept).encode())


@pytest.mark.parametrize("value", ["utc", "local", "Europe/Berlin", ""])
def test_another_zone_of_the_timeline_is_refused_by_name(value):
    world = world_in("UTC")
    change_properties(world, "timezone=LOCAL", f"timezone={value}")

    with pytest.raises(UnsupportedTable, match=f"{TIMELINE_ZONE}.*UTC or LOCAL"):
        world.open()


def test_a_table_that_does_not_tell_its_zone_is_in_local_time():
    world = world_in("Asia/Kolkata")
    change_properties(world, f"{TIMELINE_ZONE}=LOCAL\n", "")

    assert world.insert("a").instant.startswith(time_at(START_MS, ZoneInfo("Asia/Kolkata"))[:12])


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Asia/Kolkata", "Asia/Kolkata"),
        (":America/New_York", "America/New_York"),
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("", "UTC"),
        ("UTC", "UTC"),
        ("<-03>3", None),
        ("Mars/Olympus", None),
        ("../../etc/passwd", None),
    ],
)
def test_the_zone_of_a_process_is_that_of_tz(given, name, monkeypatch):
    monkeypatch.setenv("TZ", given)

    assert SystemClock().zone_name() == name


def test_without_tz_it_is_that_of_the_machine(monkeypatch):
    monkeypatch.delenv("TZ", raising=False)

    name = SystemClock().zone_name()

    link = Path("/etc/localtime")
    assert (
        name == (str(link.resolve()).partition("/zoneinfo/")[2] if link.exists() else "UTC") or name is None
    )


_WRITER = """
import sys
import holdfast
import pyarrow as pa
path, key = sys.argv[1:]
options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id",
           "hoodie.table.timeline.timezone": "LOCAL", "hoodie.datasource.write.operation": "upsert"}
print(holdfast.write(pa.table({"id": [key], "n": [1]}), path, options).instant)
"""


def test_processes_in_three_zones_write_one_table_in_the_zone_of_the_first(tmp_path):
    path = str(tmp_path / "t")
    instants = []
    for zone in ("America/New_York", "Asia/Kolkata", "UTC"):
        environment = os.environ | {"TZ": zone, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _WRITER, path, zone]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        instants.append(ran.stdout.strip())

    there = dt.datetime.now(ZoneInfo("America/New_York"))
    for instant in instants:
        written = dt.datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=there.tzinfo)
        assert dt.timedelta(0) <= there - written < dt.timedelta(minutes=5)
    table = holdfast.open_table(path)
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["America/New_York", "Asia/Kolkata", "UTC"]
    assert table.to_arrow(as_of=dt.datetime.now(dt.UTC)).num_rows == 3
    assert [file for file in table.verify().findings if file.severity != "info"] == []
