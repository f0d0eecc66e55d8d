"""Switch: publishing a push and taking it back, for a table of few segments and for one of many.

What is decided is the same for both, but the lists of names are longer. So the
longer call may take as long as two short ones and, beside that, as the lists
alone: reading and writing the records that hold them, going through each name
as often as a switch cannot do without.

Neither call reads the metadata of the segments, so there is none here. The
controller has read the table before, as one that took its uploads has.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.framework import Goal, Scene, Variant, Workload
from holdfast.clock import SystemClock
from holdfast.config.push import parse_table
from holdfast.config.push_schema import parse_schema
from holdfast.format.lineage import lineage_record
from holdfast.format.znode import encode_record
from holdfast.model.lineage import EntryState, Lineage, visible
from holdfast.push.calls import Caller, StartRequest
from holdfast.push.controller import Controller
from holdfast.push.metastore.open import open_metastore
from holdfast.push.metastore.port import Replace
from holdfast.push.segments.deep_store import DeepStore
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import lineage_path
from holdfast.storage.open import location_of, open_store

_TABLE = "orders_OFFLINE"
_BY = Caller(actor="bench")
_STORE = "push.db"
_FEW = 10
_SHORT = 2
"""So many short calls a long one may take, apart from its lists."""
_AFTER = {"end": EntryState.COMPLETED, "revert": EntryState.REVERTED}
_SCHEMA = {"schemaName": "orders", "dimensionFieldSpecs": [{"name": "id", "dataType": "LONG"}]}
_CONFIG = {
    "tableName": "orders", "tableType": "OFFLINE", "segmentsConfig": {"replication": "1"},
    "ingestionConfig": {
        "batchIngestionConfig": {"segmentIngestionType": "REFRESH", "consistentDataPush": True}
    },
}  # fmt: skip


def switch(*, segments: int) -> Workload:
    """End and revert of a push that replaces so many segments by as many."""

    def set_up(folder: Path) -> Scene:
        few = _Prepared.built(folder / "few", _FEW)
        many = _Prepared.built(folder / "many", segments)
        variants = [variant for verb in _AFTER for variant in _variants(verb, few, many)]
        return Scene(tuple(variants), {"segments": segments})

    goals = tuple(Goal(f"{verb} of many", 1.0, compared_with=_allowance(verb)) for verb in _AFTER)
    return Workload(name="switch", limit="end of 10", goals=goals, set_up=set_up)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The store of a table whose push is about to be ended, and the same about to be reverted."""

    folder: Path
    entry_id: str

    @classmethod
    def built(cls, folder: Path, segments: int) -> "_Prepared":
        for verb in _AFTER:
            (folder / verb).mkdir(parents=True)
        with _Opened(folder / "end") as opened:
            entry_id = opened.start_push(segments)
        shutil.copy(folder / "end" / _STORE, folder / "revert" / _STORE)
        with _Opened(folder / "revert", entry_id) as opened:
            opened.call("end")
        return cls(folder, entry_id)

    def opened(self, verb: str, folder: Path) -> "_Opened":
        """A copy of its own, with everything read once."""
        folder.mkdir()
        shutil.copy(self.folder / verb / _STORE, folder / _STORE)
        opened = _Opened(folder, self.entry_id)
        opened.controller.views.state(_TABLE)
        return opened


class _Opened:
    def __init__(self, folder: Path, entry_id: str = "") -> None:
        self._metastore = open_metastore(f"sqlite:///{folder / _STORE}")
        self._catalog = Catalog(self._metastore)
        self._entry_id = entry_id
        deep_store = DeepStore(open_store(location_of(str(folder / "segments"))))
        self.controller = Controller(self._catalog, deep_store, SystemClock())

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._metastore.close()

    def start_push(self, segments: int) -> str:
        """A push of as many segments as the table has, all of them uploaded."""
        self._catalog.create_schema(parse_schema(_SCHEMA))
        self._catalog.create_table(parse_table(_CONFIG))
        old, new = _names(1, segments), _names(2, segments)
        self._add(old)
        request = StartRequest(segments_from=old, segments_to=new)
        entry_id = self.controller.start_replace(_TABLE, request, by=_BY).entry_id
        self._add(new)
        return entry_id

    def _add(self, names: tuple[str, ...]) -> None:
        state = self._catalog.load(_TABLE)
        self._catalog.save(state, replace(state, segments=state.segments | frozenset(names)))

    def call(self, verb: str) -> None:
        if verb == "end":
            self.controller.end_replace(_TABLE, self._entry_id, by=_BY)
        else:
            self.controller.revert_replace(_TABLE, self._entry_id, by=_BY)

    def move_lists(self, verb: str) -> None:
        """What a switch must do with the lists at least: read, look up, compare, tell, write."""
        state = self._catalog.load(_TABLE)
        version = state.versions[lineage_path(_TABLE)]
        assert version is not None, "the table has a lineage"
        (entry,) = state.lineage.entries
        assert state.segments.issuperset(entry.segments_from)
        assert state.segments.issuperset(entry.segments_to)
        lineage = Lineage((replace(entry, state=_AFTER[verb]),))
        before, after = visible(state.segments, state.lineage), visible(state.segments, lineage)
        assert sorted(after - before) != sorted(before - after)
        content = encode_record(lineage_record(_TABLE, lineage))
        self._metastore.write([Replace(lineage_path(_TABLE), content, version)])

    def outcome(self) -> EntryState:
        (entry,) = self.controller.views.lineage(_TABLE).entries
        return entry.state


def _names(push: int, segments: int) -> tuple[str, ...]:
    return tuple(f"orders_2026-11-{push:02}_2026-11-{push:02}_{number:06}" for number in range(segments))


def _allowance(verb: str) -> str:
    return f"{_SHORT} × {verb} of 10, and the lists"


def _variants(verb: str, few: _Prepared, many: _Prepared) -> tuple[Variant, ...]:
    def call(opened: Sequence[_Opened]) -> None:
        opened[0].call(verb)

    def move_lists(opened: Sequence[_Opened]) -> None:
        opened[0].move_lists(verb)

    def do_what_is_allowed(opened: Sequence[_Opened]) -> None:
        for short in opened[1:]:
            short.call(verb)
        move_lists(opened)

    return (
        _variant(f"{verb} of 10", verb, [few], call),
        _variant(f"{verb} of many", verb, [many], call),
        _variant(f"{verb}, the lists of many", verb, [many], move_lists),
        _variant(_allowance(verb), verb, [many, *[few] * _SHORT], do_what_is_allowed),
    )


def _variant(
    name: str, verb: str, prepared: Sequence[_Prepared], run: Callable[[Sequence[_Opened]], None]
) -> Variant:
    opened: list[_Opened] = []

    def prepare(folder: Path) -> None:
        opened.extend(one.opened(verb, folder / str(number)) for number, one in enumerate(prepared))

    def check(_: Path) -> set[EntryState]:
        return {one.outcome() for one in opened}

    def finish(_: Path) -> None:
        while opened:
            opened.pop().close()

    return Variant(name, lambda _: run(opened), prepare, check, finish, task=verb)
