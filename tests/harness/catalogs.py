"""A catalog with one table, and metastores in which somebody else is faster."""

from dataclasses import replace

from holdfast.config.push import parse_table
from holdfast.config.push_schema import parse_schema
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.model.segment import Segment
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import (
    config_path,
    external_view_path,
    ideal_state_path,
    lineage_path,
    push_state_path,
    segment_path,
)

TABLE = "orders_OFFLINE"
SCHEMA = {"schemaName": "orders", "dimensionFieldSpecs": [{"name": "city", "dataType": "STRING"}]}
CONFIG = {"tableName": "orders", "tableType": "OFFLINE"}


def with_table(metastore):
    catalog = Catalog(metastore, instance="Server_here_1")
    catalog.create_schema(parse_schema(SCHEMA))
    catalog.create_table(parse_table(CONFIG))
    return catalog


def segment(name, **facts):
    return Segment(**{"name": name, "crc": 1, "docs": 2, "size_bytes": 3, "uri": f"orders/{name}", **facts})


def entry(**facts):
    defaults = {
        "id": "e1",
        "segments_from": (),
        "segments_to": ("s1",),
        "state": EntryState.IN_PROGRESS,
        "changed_at_ms": 5,
    }
    return LineageEntry(**{**defaults, **facts})


def add(catalog, *names):
    before = catalog.load(TABLE)
    after = replace(before, segments=before.segments | set(names))
    catalog.save(before, after, added={name: segment(name) for name in names})


def save_together(catalog, steps):
    """Write the steps of several tables in one transaction, as the controller does."""
    catalog.metastore.write([change for before, after in steps for change in catalog.changes(before, after)])


def records(metastore):
    paths = [make(TABLE) for make in (lineage_path, ideal_state_path, external_view_path, push_state_path)]
    return metastore.read_all([*paths, config_path(TABLE), segment_path(TABLE, "s1")])


class Loses:
    """A metastore in which somebody else is faster: `meanwhile` happens before the first write."""

    def __init__(self, inner, meanwhile):
        self._inner = inner
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def write(self, changes):
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        self._inner.write(changes)


class Reads:
    """A metastore that reads record by record; before read number `at` somebody else does something."""

    def __init__(self, inner, at, meanwhile):
        self._inner = inner
        self._left = at
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def read(self, path):
        if self._left == 0:
            self._meanwhile()
        self._left -= 1
        return self._inner.read(path)

    def read_all(self, paths):
        return [self.read(path) for path in paths]
