"""The overlay of a slice against a plain account: what each log says, one entry after the other."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.log_writer import SCHEMA, command_block, data_block, delete_block
from holdfast.config.table import Payload
from holdfast.files.merged_slice import LogMerge, each_merged
from holdfast.files.overlay import read_overlay
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, encode_block
from holdfast.format.schemas import META_COLUMNS
from holdfast.model.instant import InstantTime
from holdfast.model.slices import FileSlice
from holdfast.storage.memory import MemoryStore
from holdfast.table.log_instants import LogInstants

ORDERING = SCHEMA.field("ts")
STORED = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *SCHEMA])
BASE_TIME = InstantTime("20260101000000000")

keys = st.sampled_from([f"k{number}" for number in range(8)])
orders = st.one_of(st.none(), st.integers(0, 4))


@dataclass(frozen=True)
class Write:
    """One log file of one instant."""

    upserts: tuple[tuple[str, int | None], ...]
    deletes: tuple[tuple[str, int | None], ...]
    is_avro: bool
    fate: str
    """Whether it is committed, pending, or rolled back by a command."""


writes = st.builds(
    Write,
    st.lists(st.tuples(keys, orders), max_size=6).map(tuple),
    st.lists(st.tuples(keys, orders), max_size=3, unique_by=lambda each: each[0]).map(tuple),
    st.booleans(),
    st.sampled_from(["committed"] * 3 + ["pending", "rolled back"]),
)


def _instant(number: int) -> str:
    return str(int(BASE_TIME) + number)


def _least(order: int | None) -> int:
    return -1 if order is None else order


class Account:
    """What a slice holds, by Hudi's rules for one record after the other."""

    def __init__(self, base: dict[str, int | None], *, by_order: bool) -> None:
        self.base = base
        self.by_order = by_order
        self.said: dict[str, tuple[str, int | None, str]] = {}
        """Key → whether the logs say row or delete, its order, its value."""

    def upsert(self, key: str, order: int | None, value: str) -> None:
        held = self.said.get(key)
        if self.by_order and held and held[0] == "row" and _least(held[1]) > _least(order):
            return
        self.said[key] = "row", order, value

    def delete(self, key: str, order: int | None) -> None:
        held = self.said.get(key)
        if self.by_order and held:
            if held[0] == "row" and order is not None and _least(held[1]) > order:
                return
            if held[0] == "delete" and held[1] is None and order is not None:
                return
        self.said[key] = "delete", order, ""

    def rows(self) -> dict[str, tuple[int | None, str]]:
        found = {key: (order, "base") for key, order in self.base.items()}
        for key, (kind, order, value) in self.said.items():
            is_forced = not self.by_order or (kind == "delete" and order is None)
            if key in self.base and not is_forced and _least(self.base[key]) > _least(order):
                continue
            found.pop(key, None)
            if kind == "row":
                found[key] = order, value
        return found


def _base_file(store: MemoryStore, rows: dict[str, int | None]) -> str:
    block = data_block(BASE_TIME, [(key, order, "base") for key, order in rows.items()])
    with store.upload("base.parquet") as sink:
        sink.write(block.content)
    return "base.parquet"


def _log_files(store: MemoryStore, history: list[Write]) -> list[str]:
    logs = []
    for number, write in enumerate(history, start=1):
        time = _instant(number)
        rows = [(key, order, f"{number}.{at}") for at, (key, order) in enumerate(write.upserts)]
        blocks = [data_block(time, rows, is_avro=write.is_avro)] if rows else []
        blocks += [delete_block(time, dict(write.deletes))] if write.deletes else []
        if write.fate == "rolled back":
            blocks.append(command_block(_instant(900 + number), time))
        logs.append(f".f-0_{BASE_TIME}.log.{number}_0-1-{number}")
        store.put(logs[-1], b"".join(map(encode_block, blocks)))
    return logs


@settings(max_examples=300)
@given(st.dictionaries(keys, orders), st.lists(writes, max_size=6), st.booleans(), st.integers(0, 6))
def test_a_slice_has_the_rows_that_an_account_of_its_records_has(base, history, by_order, until):
    store = MemoryStore()
    account = Account(base, by_order=by_order)
    for number, write in enumerate(history[:until], start=1):
        if write.fate == "committed":
            for at, (key, order) in enumerate(write.upserts):
                account.upsert(key, order, f"{number}.{at}")
            for key, order in write.deletes:
                account.delete(key, order)
    committed = {n for n, write in enumerate(history, start=1) if write.fate == "committed"}
    # Of rolled-back writes the timeline may say anything: the command alone decides.
    undecided = {n for n, write in enumerate(history, start=1) if write.fate == "rolled back"}
    shown = frozenset(_instant(n) for n in committed | undecided if n <= until)
    slice_ = FileSlice("", "f-0", BASE_TIME, _base_file(store, base), logs=tuple(_log_files(store, history)))
    merge = LogMerge(LogInstants(shown, BASE_TIME), ORDERING if by_order else None)

    found = pa.concat_tables([SCHEMA.empty_table(), *each_merged(store, slice_, SCHEMA, merge)])

    rows = {row["id"]: (row["ts"], row["value"]) for row in found.to_pylist()}
    assert len(rows) == found.num_rows
    assert rows == account.rows()
    without_base = pa.concat_tables(
        [SCHEMA.empty_table(), *each_merged(store, slice_, SCHEMA, merge, with_base=False)]
    )
    assert {row["id"] for row in without_base.to_pylist()} == {
        key for key, (_, value) in rows.items() if value != "base"
    }


def _overlay(*blocks, ordering=ORDERING, schema=STORED, counted=("1", "2", "3")):
    store = MemoryStore()
    store.put("log", b"".join(map(encode_block, blocks)))
    slice_ = FileSlice("", "f-0", BASE_TIME, None, logs=("log",))
    return read_overlay(
        store, slice_, schema, instants=LogInstants(frozenset(counted), None), ordering=ordering
    )


def test_an_overlay_has_one_entry_for_each_key():
    overlay = _overlay(
        data_block("1", [("a", 1, "one"), ("b", 2, "two")]), delete_block("1", {"c": 7, "d": None})
    )

    entries = zip(
        overlay.keys.to_pylist(), overlay.removes, overlay.orderings.to_pylist(), overlay.wins, strict=True
    )
    assert sorted((key, bool(gone), order, bool(wins)) for key, gone, order, wins in entries) == [
        ("a", False, 1, False), ("b", False, 2, False), ("c", True, 7, False), ("d", True, None, True),
    ]  # fmt: skip
    assert overlay.rows.schema == STORED
    assert overlay.rows.num_rows == len(overlay) == 4


def test_where_the_last_write_wins_every_entry_does():
    overlay = _overlay(data_block("1", [("a", 1, "one")]), delete_block("1", {"c": 7}), ordering=None)

    assert overlay.orderings is None
    assert overlay.wins.all()


def test_rows_that_say_that_they_are_deleted_remove_their_keys():
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    overlay = _overlay(data_block("1", [("a", 1, "one", True), ("b", 1, "two", None)], schema=schema))

    assert dict(zip(overlay.keys.to_pylist(), overlay.removes.tolist(), strict=True)) == {
        "a": True,
        "b": False,
    }


def test_of_fractions_nan_is_the_greatest():
    schema = SCHEMA.set(1, pa.field("ts", pa.float64()))
    overlay = _overlay(
        data_block("1", [("a", float("nan"), "nan"), ("b", 1.5, "one")], schema=schema),
        data_block("2", [("a", 1e300, "large"), ("b", 1.25, "less")], schema=schema),
        ordering=schema.field("ts"),
        schema=schema,
    )

    assert sorted(overlay.rows["value"].to_pylist()) == ["nan", "one"]


def test_an_empty_slice_of_logs_says_nothing():
    overlay = _overlay(data_block("9", [("a", 1, "pending")]))

    assert len(overlay) == 0
    assert overlay.rows.num_rows == 0


def test_a_million_rows_of_logs_fold_without_a_step_for_each():
    """Guards against a loop over rows: this takes a second, and a loop would take minutes."""
    count = 200_000
    rows = [(f"k{number}", number, "x") for number in range(count)]
    overlay = _overlay(*(data_block(str(each), rows) for each in (1, 2, 3)))

    assert len(overlay) == count
    assert np.unique(overlay.rows[META_COLUMNS[0]].to_pylist()).tolist() == ["3"]


@pytest.mark.parametrize("payload", [Payload.EVENT_TIME, Payload.LATEST_WRITE])
def test_a_compacted_block_is_read_once(payload):
    times = {BlockHeader.COMPACTED_BLOCK_TIMES: b"1, 2"}
    overlay = _overlay(
        data_block("1", [("a", 1, "one")]),
        data_block("2", [("a", 2, "two"), ("b", 2, "two")]),
        data_block("3", [("a", 2, "two"), ("b", 2, "two")], header=times),
        ordering=ORDERING if payload is Payload.EVENT_TIME else None,
    )

    assert sorted(overlay.rows[META_COLUMNS[0]].to_pylist()) == ["3", "3"]


def test_a_block_without_a_schema_is_damage():
    broken = LogBlock(BlockType.AVRO_DATA, b"\0\0\0\3\0\0\0\0", {BlockHeader.INSTANT_TIME: b"1"})

    with pytest.raises(Exception, match="cannot be read") as caught:
        _overlay(broken)

    assert caught.value.facts["file"] == "log"
