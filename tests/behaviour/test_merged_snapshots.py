"""Every snapshot, every moment and every range of changes of a table with log files, against a dict."""

import random

import pyarrow as pa
import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from harness.log_writer import EVENT_TIME, LATEST

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
LOGS = {
    "holdfast.mor.max.log.ratio": "100",
    "holdfast.mor.max.logs": "6",
    "hoodie.clean.automatic": "false",
}


class Story:
    """Writes to a table, and what it must hold after each."""

    def __init__(self, path, payload, chance):
        self.by_order = payload == EVENT_TIME
        self.chance = chance
        self.table = holdfast.create_table(
            str(path), name="t", record_key="id", partition_by="city", ordering="ts",
            table_type="MERGE_ON_READ", properties={"hoodie.compaction.payload.class": payload},
        )  # fmt: skip
        self.rows = {}
        self.moments = []

    def step(self, number):
        ids = self.chance.sample(range(30), self.chance.randint(1, 12))
        rows = [
            {"id": f"k{n}", "city": f"c{n % 3}", "ts": self.chance.randint(0, 50), "value": f"{number}.{n}"}
            for n in ids
        ]
        found = pa.Table.from_pylist(rows, schema=SCHEMA)
        kind = self.chance.random()
        if kind < 0.65 or not self.rows:
            commit = self.table.upsert(found, options=LOGS)
            self.rows |= {row["id"]: row for row in rows if self._wins(row)}
        elif kind < 0.9:
            has_order = self.chance.random() < 0.5
            commit = self.table.delete(found if has_order else found.select(["id", "city"]), options=LOGS)
            for row in rows:
                if not has_order or self._wins(row):
                    self.rows.pop(row["id"], None)
        else:
            commit = self.table.compact(options=LOGS)
        if commit is not None:
            self.moments.append((commit.instant, dict(self.rows)))

    def _wins(self, row):
        stored = self.rows.get(row["id"])
        return not self.by_order or stored is None or stored["ts"] <= row["ts"]


def by_key(found):
    rows = {row["id"]: row for row in found.select(SCHEMA.names).to_pylist()}
    assert len(rows) == found.num_rows
    return rows


@pytest.mark.parametrize("payload", [EVENT_TIME, LATEST], ids=["event time", "latest write"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_was_written(seed, payload, tmp_path):
    story = Story(tmp_path / "t", payload, random.Random(seed))
    for number in range(12):
        story.step(number)
        assert by_key(story.table.to_arrow()) == story.rows
        assert by_key(hudi_snapshot(tmp_path / "t")) == story.rows

    assert any(".log." in path for instant, _ in story.moments for path in story.table.files(as_of=instant))
    for instant, then in story.moments:
        assert by_key(story.table.to_arrow(as_of=instant)) == then
        changed = {key: row for key, row in story.rows.items() if then.get(key) != row}
        assert by_key(story.table.changes_to_arrow(since=instant)) == changed
