"""The Iceberg metadata of a table: one snapshot for each commit.

It lies in a folder of its own below `.hoodie`, so that whatever a program writes
there is no file of the table; data files are named by their whole addresses. Each
version of the metadata is a file that is created exclusively. Manifests are named
by the version that they were made for and by their content.
"""

import hashlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.exports.partitions import partition_columns
from holdfast.exports.statistics import FileFacts, Footers, check_numbers
from holdfast.exports.step import ENGINE, NO_INSTANT, ExportedTable, Step, root_address
from holdfast.format.iceberg import (
    ADDED,
    DELETED,
    EXISTING,
    FIRST_PARTITION_ID,
    bound_bytes,
    decode_records,
    encode_manifest,
    encode_manifest_list,
    id_map,
    name_mapping,
    schema_fields,
)
from holdfast.format.malformed import report_damage
from holdfast.model.instant import InstantTime
from holdfast.model.names import ICEBERG_FOLDER
from holdfast.storage.store import Store, read_or_none

_METADATA = f"{ICEBERG_FOLDER}/metadata"
_HINT_FILE = f"{_METADATA}/version-hint.text"
_SUFFIX = ".metadata.json"
_INSTANT, _SLOT, _SHOWN = "holdfast.instant", "holdfast.slot", "holdfast.shown-slot"
_NAME_MAPPING = "schema.name-mapping.default"
_FILES_PER_MANIFEST = 1000
_MANIFESTS_MAX = 100
"""With more of them, the small ones become one."""
_SMALL = _FILES_PER_MANIFEST // 4
_VERSIONS_KEPT = 20
_HINT = f"delete the folder {ICEBERG_FOLDER}, then: holdfast exports run PATH"

_Record = Mapping[str, Any]


@dataclass(frozen=True)
class IcebergState:
    """What the newest version says."""

    store: Store
    version: int
    metadata: dict[str, Any]

    @property
    def instant(self) -> InstantTime:
        return InstantTime(self.metadata["properties"][_INSTANT])

    @property
    def slot(self) -> int:
        return int(self.metadata["properties"][_SLOT])

    @property
    def shown_slot(self) -> int:
        return int(self.metadata["properties"][_SHOWN])

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """Oldest first."""
        snapshots: list[dict[str, Any]] = self.metadata["snapshots"]
        return snapshots

    @property
    def current(self) -> dict[str, Any] | None:
        number = self.metadata.get("current-snapshot-id", -1)
        return next((one for one in self.snapshots if one["snapshot-id"] == number), None)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(field["name"] for field in _spec(self.metadata)["fields"])

    @cached_property
    def root(self) -> str:
        return root_address(self.store)

    @property
    def is_here(self) -> bool:
        """Whether its addresses are those of this table: it may be a copy."""
        is_here: bool = self.metadata["location"] == self.store.uri(ICEBERG_FOLDER)
        return is_here

    def paths(self) -> list[str]:
        """The files of all snapshots, relative to the table."""
        names = dict.fromkeys(path for one in self.snapshots for path in self.paths_of(one))
        return [name.removeprefix(f"{self.root}/") for name in names]

    def paths_of(self, snapshot: _Record | None) -> list[str]:
        """The addresses of a snapshot's files."""
        if snapshot is None:
            return []
        manifests = read_manifest_list(self.store, self.root, snapshot)
        return [
            entry["data_file"]["file_path"]
            for manifest in manifests
            for entry in self.entries(manifest)
            if entry["status"] != DELETED
        ]

    def entries(self, manifest: _Record) -> list[dict[str, Any]]:
        """What a manifest says, read once."""
        path = manifest["manifest_path"]
        if path not in self._known:
            self._known[path] = _read_records(self.store, path.removeprefix(f"{self.root}/"))
        return self._known[path]

    @cached_property
    def _known(self) -> dict[str, list[dict[str, Any]]]:
        return {}

    def lacks(self, step: Step) -> bool:
        """Whether a version is missing that shows what the step shows."""
        if self.instant != step.instant or not self.is_here or self.has_other_columns(step):
            return True
        if _tags(self.snapshots, step) != _tags_in(self.metadata):
            return True
        shown = self.paths_of(self.current)
        return len(shown) != step.files.num_rows or set(shown) != set(_addresses(self.root, step.files))

    def has_other_columns(self, step: Step) -> bool:
        """Whether the columns of the step are not those of the newest version."""
        if step.schema is None:
            return False
        fields: list[dict[str, Any]] = _schema(self.metadata)["fields"]
        return fields != schema_fields(step.schema, step.field_ids)


def metadata_path(version: int) -> str:
    return f"{_METADATA}/v{version}{_SUFFIX}"


def read_iceberg(store: Store) -> IcebergState | None:
    """The newest version; None if there is none. `TableDamaged` if it cannot be read."""
    versions = [_version(file.path) for file in store.folder(_METADATA).files]
    newest = max((version for version in versions if version is not None), default=None)
    if newest is None:
        return None
    path = metadata_path(newest)
    content = read_or_none(store, path)
    try:
        if content is None:
            raise ValueError("it is gone")
        metadata = json.loads(content)
        state = IcebergState(store, newest, metadata)
        _ = (
            state.instant,
            state.slot,
            state.shown_slot,
            state.current,
            state.partition_by,
            metadata["location"],
        )
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise TableDamaged(
            "the Iceberg metadata cannot be read", file=path, cause=error, hint=_HINT
        ) from error
    return state


def advance_iceberg(
    store: Store, table: ExportedTable, state: IcebergState | None, step: Step, footers: Footers
) -> IcebergState | None:
    """Make the next version; None if somebody else did meanwhile."""
    version = 1 if state is None else state.version + 1
    base = state if state is not None and state.is_here else None
    draft = _Draft(store, table, base, step, footers, version)
    return _publish(store, state, draft.metadata())


def expire_iceberg(store: Store, doomed: Collection[str]) -> bool:
    """Let the snapshots go that have one of these files; whether that was done, or nothing was to do."""
    state = read_iceberg(store)
    if state is None or not state.is_here:
        return True
    addresses = {f"{state.root}/{path}" for path in doomed}
    current = state.current
    try:
        kept = [one for one in state.snapshots if one is current or addresses.isdisjoint(state.paths_of(one))]
    except TableDamaged:
        now = read_iceberg(store)
        if now is None or now.version != state.version:
            return False  # What only this version named may be gone.
        raise
    if len(kept) == len(state.snapshots):
        return True
    return _publish(store, state, with_snapshots(state.metadata, kept)) is not None


def delete_iceberg(store: Store) -> None:
    """Remove the metadata, the newest version first: what is left when this dies is an older table."""
    paths = store.paths(ICEBERG_FOLDER)
    versions = sorted(
        (path for path in paths if _version(path) is not None),
        key=lambda path: _version(path) or 0,
        reverse=True,
    )
    for path in (_HINT_FILE, *versions):
        store.delete(path)
    store.delete_all(path for path in paths if path != _HINT_FILE and path not in versions)
    store.prune(ICEBERG_FOLDER)


def with_snapshots(metadata: Mapping[str, Any], kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The metadata without other snapshots than these, and what refers to them."""
    numbers = {one["snapshot-id"] for one in kept}
    snapshots = [
        {key: value for key, value in one.items() if key != "parent-snapshot-id" or value in numbers}
        for one in kept
    ]
    return {
        **metadata,
        "snapshots": snapshots,
        "refs": {name: ref for name, ref in metadata["refs"].items() if ref["snapshot-id"] in numbers},
        "snapshot-log": [_log_entry(one) for one in snapshots],
    }


def read_manifest_list(store: Store, root: str, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _read_records(store, snapshot["manifest-list"].removeprefix(f"{root}/"))


@dataclass(frozen=True)
class _Draft:
    """The next version while it is made."""

    store: Store
    table: ExportedTable
    state: IcebergState | None
    step: Step
    footers: Footers
    version: int

    def metadata(self) -> dict[str, Any]:
        """The metadata of the next version; the manifests that it names are stored."""
        metadata = self._with_schema(self._first() if self.state is None else self.state.metadata)
        stale = self._stale()
        kept = [one for one in metadata["snapshots"] if one["snapshot-id"] not in stale]
        current = kept[-1] if kept else None
        if current is None or not self._shows(current):
            metadata, current = self._with_snapshot(metadata, kept)
            kept = [*kept, current]
        tagged = _tags(kept, self.step).items()
        tags = {name: {"snapshot-id": number, "type": "tag"} for name, number in tagged}
        main = {"main": {"snapshot-id": current["snapshot-id"], "type": "branch"}}
        settled = with_snapshots({**metadata, "refs": {**main, **tags}}, kept)
        return settled | {
            "current-snapshot-id": current["snapshot-id"],
            "current-schema-id": metadata["current-schema-id"],
            "last-updated-ms": max(metadata["last-updated-ms"], self.step.moment_ms),
            "properties": metadata["properties"]
            | {
                _INSTANT: self.step.instant,
                _SLOT: str(self.step.slot),
                _SHOWN: str(self.step.shown_slot),
            }
            | self._mapping(),
        }

    @property
    def _before(self) -> Sequence[dict[str, Any]]:
        """The snapshots there were."""
        return () if self.state is None else self.state.snapshots

    def _first(self) -> dict[str, Any]:
        step = self.step
        name = f"{ENGINE}:{self.table.name}:{self.store.uri('')}:{step.instant}:{self.version}"
        return {
            "format-version": 2,
            "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "location": self.store.uri(ICEBERG_FOLDER),
            "last-sequence-number": 0,
            "last-updated-ms": step.moment_ms,
            "last-column-id": 0,
            "schemas": [],
            "current-schema-id": -1,
            "partition-specs": [],
            "default-spec-id": -1,
            "last-partition-id": FIRST_PARTITION_ID - 1,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "snapshots": [],
            "refs": {},
            "snapshot-log": [],
            "metadata-log": [],
        }

    def _with_schema(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """The metadata with the columns of the step as the current ones."""
        if self.step.schema is None:
            return metadata
        fields = schema_fields(self.step.schema, self.step.field_ids)
        known = next((one for one in metadata["schemas"] if one["fields"] == fields), None)
        schemas = metadata["schemas"]
        if known is None:
            known = {"type": "struct", "schema-id": len(schemas), "fields": fields}
            schemas = [*schemas, known]
        last = max([metadata["last-column-id"], *self.step.field_ids.values()])
        return {
            **metadata,
            "schemas": schemas,
            "current-schema-id": known["schema-id"],
            "last-column-id": last,
        }

    def _mapping(self) -> dict[str, str]:
        if self.step.schema is None:
            return {}
        return {_NAME_MAPPING: name_mapping(self.step.schema, self.step.field_ids)}

    def _stale(self) -> set[int]:
        """Snapshots that are not shown any more: taken back, or from before a commit that was late."""
        step = self.step
        stale = set()
        for one in self._before:
            at = InstantTime(one["summary"][_INSTANT])
            is_late = step.changed_from is not None and step.changed_from <= at
            if at > step.instant or step.is_gone(at) or is_late or at == NO_INSTANT:
                stale.add(one["snapshot-id"])
        return stale

    def _shows(self, snapshot: _Record) -> bool:
        """Whether a snapshot is that of the step."""
        if self.state is None or snapshot["summary"][_INSTANT] != self.step.instant:
            return False
        return set(self.state.paths_of(snapshot)) == set(_addresses(self.state.root, self.step.files))

    def _with_snapshot(
        self, metadata: dict[str, Any], kept: Sequence[dict[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The metadata with what a new snapshot needs, and the snapshot."""
        step, parent = self.step, kept[-1] if kept else None
        sequence = metadata["last-sequence-number"] + 1
        used = {one["snapshot-id"] for one in self._before}
        number = int(step.instant)
        if number in used or number == 0:
            number = next(n for n in range(number * 10 + 1, number * 10 + len(used) + 3) if n not in used)
        manifests, entries, change = self._carry_over(parent, number)
        new, facts = change.added, self.footers.read(change.added["path"].to_pylist())
        is_changed = self.state is not None and self.state.has_other_columns(step)
        check_numbers(step, self.footers.read(step.files["path"].to_pylist()) if is_changed else facts)
        metadata = self._with_spec(metadata, dict(zip(new["path"].to_pylist(), facts, strict=True)))
        spec_id = metadata["default-spec-id"]
        entries.setdefault(spec_id, []).extend(self._entries_of_new(metadata, new, facts, number))
        for each, rows in entries.items():
            for first in range(0, len(rows), _FILES_PER_MANIFEST):
                some = rows[first : first + _FILES_PER_MANIFEST]
                manifests.append(self._store_manifest(metadata, each, some, number, sequence))
        snapshot: dict[str, Any] = {
            "snapshot-id": number,
            "sequence-number": sequence,
            "timestamp-ms": step.moment_ms,
            "schema-id": metadata["current-schema-id"],
            "summary": {
                "operation": change.operation,
                "added-data-files": str(new.num_rows),
                "deleted-data-files": str(change.removed),
                "total-data-files": str(step.files.num_rows),
                _INSTANT: step.instant,
            },
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent["snapshot-id"]
        content = encode_manifest_list(manifests, snapshot=snapshot)
        snapshot["manifest-list"] = self._store("snap", content)
        return {**metadata, "last-sequence-number": sequence}, snapshot

    def _carry_over(
        self, parent: _Record | None, number: int
    ) -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]], "_Change"]:
        """Manifests that stay as they are; entries of others, by partition spec; what changes."""
        addresses = pa.array(_addresses(self.table.root, self.step.files), pa.string())
        wanted = set(addresses.to_pylist())
        manifests: list[dict[str, Any]] = []
        entries: dict[int, list[dict[str, Any]]] = {}
        there: list[str] = []
        removed = 0
        state = self.state
        listed = [] if parent is None or state is None else read_manifest_list(self.store, state.root, parent)
        is_many = len(listed) > _MANIFESTS_MAX
        for manifest in listed:
            assert state is not None, "a manifest is of a state"
            live = [entry for entry in state.entries(manifest) if entry["status"] != DELETED]
            names = [entry["data_file"]["file_path"] for entry in live]
            there += [name for name in names if name in wanted]
            gone = len(names) - sum(name in wanted for name in names)
            is_small = is_many and len(live) < _SMALL
            if not live:
                continue
            if not gone and not is_small:
                manifests.append(manifest)
                continue
            removed += gone
            rows = entries.setdefault(manifest["partition_spec_id"], [])
            rows += [
                _carry_entry(entry, manifest, number, stays=name in wanted)
                for entry, name in zip(live, names, strict=True)
            ]
        is_new = pc.invert(pc.is_in(addresses, pa.array(there, pa.string())))
        added = self.step.files.filter(is_new).sort_by("path")
        return manifests, entries, _Change(added, removed)

    def _with_spec(self, metadata: dict[str, Any], facts: Mapping[str, FileFacts]) -> dict[str, Any]:
        """The metadata with a partition spec that fits new files as the default."""
        specs = metadata["partition-specs"]
        known = _fields_of(specs, metadata["default-spec-id"], self.table.partition_by)
        names = partition_columns(known, self.step, facts)
        if self.step.schema is None or any(name not in self.step.field_ids for name in names):
            names = ()
        fields = [
            {
                "name": name,
                "transform": "identity",
                "source-id": self.step.field_ids[name],
                "field-id": FIRST_PARTITION_ID + number,
            }
            for number, name in enumerate(names)
        ]
        spec = next((one for one in specs if one["fields"] == fields), None)
        if spec is None:
            spec = {"spec-id": len(specs), "fields": fields}
            specs = [*specs, spec]
        last = max([metadata["last-partition-id"], *(field["field-id"] for field in fields)])
        return {
            **metadata,
            "partition-specs": specs,
            "default-spec-id": spec["spec-id"],
            "last-partition-id": last,
        }

    def _entries_of_new(
        self, metadata: _Record, new: pa.Table, facts: Sequence[FileFacts], number: int
    ) -> Iterable[dict[str, Any]]:
        names = [field["name"] for field in _spec(metadata)["fields"]]
        schema = self.step.schema or pa.schema([])
        for path, size, each in zip(*new.to_pydict().values(), facts, strict=True):
            yield {
                "status": ADDED,
                "snapshot_id": number,
                "sequence_number": None,
                "file_sequence_number": None,
                "data_file": {
                    "content": 0,
                    "file_path": f"{self.table.root}/{path}",
                    "file_format": "PARQUET",
                    "partition": {name: each.columns[name].least for name in names},
                    "record_count": each.rows,
                    "file_size_in_bytes": size,
                    "sort_order_id": None,
                    **_column_facts(each, schema, self.step.field_ids),
                },
            }

    def _store_manifest(
        self,
        metadata: _Record,
        spec_id: int,
        entries: Sequence[dict[str, Any]],
        number: int,
        sequence: int,
    ) -> dict[str, Any]:
        spec = next(one for one in metadata["partition-specs"] if one["spec-id"] == spec_id)
        content = encode_manifest(
            entries, schema=_schema(metadata), spec_id=spec_id, partition_fields=spec["fields"]
        )
        sequences = [e["sequence_number"] or sequence for e in entries if e["status"] != DELETED]
        counted = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}
        rows = {
            name: [e["data_file"]["record_count"] for e in entries if e["status"] == status]
            for name, status in counted.items()
        }
        return {
            "manifest_path": self._store("m", content),
            "manifest_length": len(content),
            "partition_spec_id": spec_id,
            "content": 0,
            "sequence_number": sequence,
            "min_sequence_number": min(sequences, default=sequence),
            "added_snapshot_id": number,
            **{f"{name}_files_count": len(found) for name, found in rows.items()},
            **{f"{name}_rows_count": sum(found) for name, found in rows.items()},
        }

    def _store(self, kind: str, content: bytes) -> str:
        """Store a file for this version; its address."""
        name = f"{kind}-{self.version}-{hashlib.sha256(content).hexdigest()[:16]}.avro"
        self.store.create(f"{_METADATA}/{name}", content)
        return self.store.uri(f"{_METADATA}/{name}")


@dataclass(frozen=True, slots=True)
class _Change:
    """What a snapshot changes."""

    added: pa.Table
    removed: int

    @property
    def operation(self) -> str:
        if self.removed:
            return "overwrite" if self.added.num_rows else "delete"
        return "append"


def _publish(store: Store, state: IcebergState | None, metadata: dict[str, Any]) -> IcebergState | None:
    """Create a version; afterwards what only the one before it named goes."""
    version = 1 if state is None else state.version + 1
    if state is not None:
        entry = {
            "metadata-file": store.uri(metadata_path(state.version)),
            "timestamp-ms": state.metadata["last-updated-ms"],
        }
        metadata = {**metadata, "metadata-log": [*metadata["metadata-log"], entry][-_VERSIONS_KEPT:]}
    if not store.create(metadata_path(version), msgspec.json.encode(metadata)):
        return None
    store.put(_HINT_FILE, str(version).encode())
    made = IcebergState(store, version, metadata)
    if state is not None:
        made._known.update(state._known)
        _delete_unnamed(store, state, made)
    store.delete(metadata_path(version - _VERSIONS_KEPT))
    return made


def _delete_unnamed(store: Store, before: IcebergState, now: IcebergState) -> None:
    """Delete lists and manifests of snapshots that are gone: no later version has files of their names."""
    left = {one["snapshot-id"] for one in now.snapshots}
    gone = [one for one in before.snapshots if one["snapshot-id"] not in left]
    if not gone or not before.is_here:
        return
    try:
        named = {path for one in now.snapshots for path in _files_named_by(store, now.root, one)}
        doomed = {path for one in gone for path in _files_named_by(store, before.root, one)} - named
    except TableDamaged:
        # Another process has moved the export meanwhile. What nobody names any more stays, then.
        return
    store.delete_all(sorted(doomed))


def _files_named_by(store: Store, root: str, snapshot: _Record) -> list[str]:
    manifests = read_manifest_list(store, root, snapshot)
    paths = [snapshot["manifest-list"], *(one["manifest_path"] for one in manifests)]
    return [path.removeprefix(f"{root}/") for path in paths]


def _column_facts(facts: FileFacts, schema: pa.Schema, ids: Mapping[str, int]) -> dict[str, Any]:
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field in schema:
        found, number = facts.columns.get(field.name), ids[field.name]
        if found is None or found.nulls is None:
            continue
        counts[number], nulls[number] = facts.rows, found.nulls
        least = bound_bytes(found.least, field.type, is_upper=False)
        greatest = bound_bytes(found.greatest, field.type, is_upper=True)
        if least is not None:
            lower[number] = least
        if greatest is not None:
            upper[number] = greatest
    return {
        "value_counts": id_map(counts),
        "null_value_counts": id_map(nulls),
        "lower_bounds": id_map(lower),
        "upper_bounds": id_map(upper),
    }


def _carry_entry(entry: _Record, manifest: _Record, number: int, *, stays: bool) -> dict[str, Any]:
    """An entry as another manifest has it: with the numbers that it inherited."""
    return {
        **entry,
        "status": EXISTING if stays else DELETED,
        "snapshot_id": entry["snapshot_id"] if stays else number,
        "sequence_number": entry["sequence_number"] or manifest["sequence_number"],
        "file_sequence_number": entry["file_sequence_number"] or manifest["sequence_number"],
    }


def _addresses(root: str, files: pa.Table) -> list[str]:
    return [f"{root}/{path}" for path in files["path"].to_pylist()]


def _tags(snapshots: Iterable[_Record], step: Step) -> dict[str, int]:
    """A tag for each savepoint of whose commit there is a snapshot."""
    return {
        f"savepoint-{one['summary'][_INSTANT]}": one["snapshot-id"]
        for one in snapshots
        if one["summary"][_INSTANT] in step.savepoints
    }


def _tags_in(metadata: _Record) -> dict[str, int]:
    return {name: ref["snapshot-id"] for name, ref in metadata["refs"].items() if ref["type"] == "tag"}


def _log_entry(snapshot: _Record) -> dict[str, Any]:
    return {"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": snapshot["snapshot-id"]}


def _schema(metadata: _Record) -> dict[str, Any]:
    number = metadata["current-schema-id"]
    return next(dict(one) for one in metadata["schemas"] if one["schema-id"] == number)


def _spec(metadata: _Record) -> dict[str, Any]:
    number = metadata["default-spec-id"]
    return next(dict(one) for one in metadata["partition-specs"] if one["spec-id"] == number)


def _fields_of(specs: Sequence[_Record], number: int, first: tuple[str, ...]) -> tuple[str, ...]:
    """The partition columns of the default spec; of a table without one those that it may have."""
    spec = next((one for one in specs if one["spec-id"] == number), None)
    return first if spec is None else tuple(field["name"] for field in spec["fields"])


def _version(path: str) -> int | None:
    name = path.rpartition("/")[2]
    text = name.removesuffix(_SUFFIX).removeprefix("v")
    return int(text) if name.endswith(_SUFFIX) and text.isdigit() else None


def _read_records(store: Store, path: str) -> list[dict[str, Any]]:
    content = read_or_none(store, path)
    if content is None:
        raise TableDamaged("a file of the Iceberg metadata is missing", file=path, hint=_HINT)
    with report_damage("a file of the Iceberg metadata cannot be read", hint=_HINT, file=path):
        return decode_records(content)
