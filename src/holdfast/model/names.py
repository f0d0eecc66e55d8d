"""The names of files: what each part says, and how to build it.

Instant files live directly in `.hoodie`; base files in their partition;
markers below `.hoodie/.temp/<instant>/`.
"""

import re
from dataclasses import dataclass
from typing import Self

from holdfast.model.instant import Action, Instant, InstantTime, State

META_FOLDER = ".hoodie"
TEMP_FOLDER = ".hoodie/.temp"
HEARTBEAT_FOLDER = ".hoodie/.heartbeat"
LEDGER_FOLDER = ".hoodie/.holdfast/ledger"
CHECKPOINT_FOLDER = ".hoodie/.holdfast/checkpoint"
ABORTED_FOLDER = ".hoodie/.holdfast/aborted"
LEDGER_FLOOR = ".hoodie/.holdfast/floor"
PLANS_FOLDER = ".hoodie/.holdfast/plans"
ZONE_FILE = ".hoodie/.holdfast/zone"
CLOCK_FILE = ".hoodie/.holdfast/clock"
"""Written to learn what time storage has, and deleted again."""
LEASE_FOLDER = ".hoodie/.holdfast/leases"
ARCHIVED_IN_PLACE = ".hoodie/.holdfast/archived-in-place"
ARCHIVED_UNDONE = ".hoodie/.holdfast/archived-undone"
FIELD_IDS_RECORD = ".hoodie/.holdfast/field-ids"
PUSHES_FOLDER = ".hoodie/.holdfast/pushes"
SOURCES_FOLDER = ".hoodie/.holdfast/sources"
STREAMS_FOLDER = ".hoodie/.holdfast/streams"
DROPPING_FILE = ".hoodie/.holdfast/dropping"
PROBE_FOLDER = ".hoodie/.holdfast/probe"
STORAGE_FOLDER = ".hoodie/.holdfast/storage"
QUARANTINE_FOLDER = ".hoodie/.holdfast/quarantine"
DELTA_FOLDER = "_delta_log"
"""The log of the export to Delta Lake, which has to lie in the table's folder."""
ICEBERG_FOLDER = ".hoodie/iceberg"
PROPERTIES_FILE = ".hoodie/hoodie.properties"
PROPERTIES_BACKUP = ".hoodie/hoodie.properties.backup"
PARTITION_METAFILE = ".hoodie_partition_metadata"

_INSTANT_FILE = re.compile(r"([0-9]+)\.([a-z]+)(?:\.(requested|inflight))?")
_BASE_FILE = re.compile(r"([^_/]+)_([0-9]+-[0-9]+-[0-9]+)_([0-9]+)\.parquet")
_LOG_FILE = re.compile(r"\.([^_/]+)_([0-9]+)\.log\.([0-9]+)(?:_([0-9]+-[0-9]+-[0-9]+))?(\.cdc)?")
_LOG_TOKEN = re.compile(r"[0-9]+-([0-9]{1,4})([0-9]{6})-([0-9]{9})")
LOG_CENTURY = "20"
_DATE_DIGITS = 8
LOG_VERSIONS = 2000
"""Hudi takes the parts of a token for numbers of 31 bits; this many versions fit before a date."""
_ARCHIVE = re.compile(r"\.commits_\.archive\.([0-9]+)(?:_.*)?")
_RESTORE_ARCHIVE = re.compile(r"\.restores_\.archive\.([0-9]+)(?:_.*)?")
_MARKER = re.compile(r"(.+)\.marker\.(CREATE|MERGE|APPEND)")

BASE_FILE_PATTERN = (
    r"^(?:(?P<partition>.*)/)?(?P<file_id>[^_/.][^_/]*)"
    r"_(?P<token>[0-9]+-[0-9]+-[0-9]+)_(?P<instant>[0-9]+)\.parquet$"
)
"""The path of a base file, for matching whole columns of paths at once."""
LOG_FILE_PATTERN = (
    r"^(?:(?P<partition>.*)/)?\.(?P<file_id>[^_/]+)_(?P<instant>[0-9]+)"
    r"\.log\.[0-9]+(?:_[0-9]+-[0-9]+-[0-9]+)?(?:\.cdc)?$"
)
"""The path of a log file; the instant is that of the file slice, not of the write."""
OUR_LOG_PATTERN = (
    r"\.log\.(?P<version>[0-9]+)_[0-9]+-(?P<mark>[0-9]{1,4})(?P<date>[0-9]{6})-(?P<time>[0-9]{9})(?:\.cdc)?$"
)
"""The end of the path of a log file whose name may tell which write made it: see `LogFileName.written_by`."""


SHOWN_AS = {Action.COMPACTION: Action.COMMIT, Action.LOGCOMPACTION: Action.DELTACOMMIT}
"""What a finished compaction is called on the timeline."""


def instant_file(time: InstantTime, action: Action, state: State) -> str:
    """The path of the file that says `action` at `time` reached `state`."""
    if state is State.COMPLETED:
        return f"{META_FOLDER}/{time}.{SHOWN_AS.get(action, action)}"
    if action is Action.COMMIT and state is State.INFLIGHT:
        return f"{META_FOLDER}/{time}.inflight"
    return f"{META_FOLDER}/{time}.{action}.{state.lower()}"


def instant_path(instant: Instant) -> str:
    return instant_file(instant.time, instant.action, instant.state)


def parse_instant_file(name: str) -> tuple[InstantTime, Action, State] | None:
    """What a file name in `.hoodie` says; None if it is not an instant file."""
    match = _INSTANT_FILE.fullmatch(name)
    if match is None:
        return None
    time, action, state = match.groups()
    if action == "inflight" and state is None:
        return InstantTime(time), Action.COMMIT, State.INFLIGHT
    if action not in tuple(Action):
        return None
    return InstantTime(time), Action(action), State(state.upper()) if state else State.COMPLETED


@dataclass(frozen=True, slots=True)
class BaseFileName:
    file_id: str
    write_token: str
    instant: InstantTime

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant}.parquet"


def parse_base_file(name: str) -> BaseFileName | None:
    match = _BASE_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, write_token, instant = match.groups()
    return BaseFileName(file_id, write_token, InstantTime(instant))


@dataclass(frozen=True, slots=True)
class LogFileName:
    """A log file: the slice that it belongs to, and its place in it."""

    file_id: str
    base_instant: InstantTime
    """That of the slice. Which write made the file is told by its blocks, and by the token if it is ours."""
    version: int
    write_token: str = ""
    """Empty in very old files."""
    is_cdc: bool = False
    """Whether it only says what changed, which no snapshot needs."""

    @classmethod
    def of_write(
        cls, file_id: str, base_instant: InstantTime, version: int, *, attempt: int, instant: InstantTime
    ) -> Self:
        """The name of a log file that an attempt of the write `instant` makes.

        The token spells the instant: two writes that see the same newest version
        never give one name to two files, and the name alone tells whose the file is.
        It spells the version, too: Hudi 1.x gives the token of a slice's last log file
        to the next one, which is then known as not of that write.
        """
        date = instant.removeprefix(LOG_CENTURY)[: _DATE_DIGITS - len(LOG_CENTURY)]
        token = f"{attempt}-{version % LOG_VERSIONS}{date}-{instant[_DATE_DIGITS:]}"
        return cls(file_id, base_instant, version, token)

    @property
    def written_by(self) -> InstantTime | None:
        """The write that made the file, if the name tells, as that of every file of ours does."""
        match = _LOG_TOKEN.fullmatch(self.write_token)
        if match is None or int(match[1]) != self.version % LOG_VERSIONS:
            return None
        return InstantTime(LOG_CENTURY + match[2] + match[3])

    @property
    def slice(self) -> tuple[str, InstantTime]:
        """The file slice that it belongs to, within its partition."""
        return self.file_id, self.base_instant

    @property
    def order(self) -> tuple[int, str]:
        """What the log files of a slice are sorted by."""
        return self.version, self.write_token

    def __str__(self) -> str:
        token = f"_{self.write_token}" if self.write_token else ""
        suffix = ".cdc" if self.is_cdc else ""
        return f".{self.file_id}_{self.base_instant}.log.{self.version}{token}{suffix}"


def parse_log_file(name: str) -> LogFileName | None:
    match = _LOG_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, base_instant, version, token, cdc = match.groups()
    return LogFileName(file_id, InstantTime(base_instant), int(version), token or "", cdc is not None)


def is_data_file(name: str) -> bool:
    """Whether a name is that of a base file or a log file."""
    return _BASE_FILE.fullmatch(name) is not None or _LOG_FILE.fullmatch(name) is not None


def is_file_of(path: str, time: InstantTime) -> bool:
    """Whether a data file's own name says it is of that instant: nothing else may be deleted for it."""
    name = path.rpartition("/")[2]
    log = parse_log_file(name)
    if log is not None:
        return log.written_by == time
    base = parse_base_file(name)
    return base is not None and base.instant == time


def in_partition(partition: str, name: str) -> str:
    """The path of a file in a partition; the root is the partition `""`."""
    return f"{partition}/{name}" if partition else name


def partition_of(path: str) -> str:
    return path.rpartition("/")[0]


def marker_folder(instant: InstantTime) -> str:
    return f"{TEMP_FOLDER}/{instant}"


def marker_path(instant: InstantTime, data_path: str, kind: str) -> str:
    """The marker that announces the data file at `data_path`."""
    return f"{marker_folder(instant)}/{data_path}.marker.{kind}"


def parse_marker(relative: str) -> tuple[str, str] | None:
    """Data path and kind from a marker's path relative to its instant's folder."""
    match = _MARKER.fullmatch(relative)
    return (match[1], match[2]) if match else None


def clean_plan_path(clean: InstantTime) -> str:
    """Where the plan of a clean waits until the ledger has decided on it."""
    return f"{PLANS_FOLDER}/{clean}.{Action.CLEAN}"


def archive_file(folder: str, number: int) -> str:
    """The path of an archive in the folder where the table keeps them."""
    return f"{META_FOLDER}/{folder}/.commits_.archive.{number}_1-0-1"


def parse_archive(name: str) -> int | None:
    """The number of an archive; None if a file is none."""
    match = _ARCHIVE.fullmatch(name)
    return int(match[1]) if match else None


def restore_archive_file(folder: str, number: int) -> str:
    """The path of an archive of restores, beside the others; Hudi, which archives none, does not read it."""
    return f"{META_FOLDER}/{folder}/.restores_.archive.{number}_1-0-1"


def is_restore_archive(name: str) -> bool:
    return _RESTORE_ARCHIVE.fullmatch(name) is not None


def heartbeat_path(instant: InstantTime) -> str:
    return f"{HEARTBEAT_FOLDER}/{instant}"
