"""Scans: the files of a snapshot, grouped by the form in which they hold the wanted columns.

For engines whose readers take one schema for all files. All files of a commit
have one schema: the commit says which, or, where it is archived, the footer of
one of its files.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.evolution import schema_in_file
from holdfast.format.malformed import report_damage
from holdfast.format.schemas import arrow_schema
from holdfast.model.instant import InstantTime
from holdfast.read.arrow_rows import read_stored_schema
from holdfast.read.snapshot import Snapshot
from holdfast.storage.store import Store

_FOOTERS_AT_ONCE = 16
_INSTANT = r"_(?P<instant>[0-9]+)\.parquet$"


@dataclass(frozen=True, slots=True)
class Scan:
    """Files to be read with one schema."""

    form: pa.Schema
    """The wanted columns as they are stored; the wanted schema itself if nothing changed since."""
    paths: list[str]


def scans(store: Store, snapshot: Snapshot, schema: pa.Schema) -> list[Scan]:
    """As few scans as can be, in no order. A table whose schema never changed is one, without I/O."""
    paths = pa.array(snapshot.paths, pa.string())
    written = pc.dictionary_encode(_commits(paths))
    commits = written.dictionary.to_pylist()
    numbers = written.indices.to_numpy()
    _, first_files = np.unique(numbers, return_index=True)
    samples = dict(zip(commits, paths.take(pa.array(first_files)).to_pylist(), strict=True))
    members: dict[pa.Schema, list[int]] = {}
    for number, form in enumerate(_forms(store, snapshot, samples, schema)):
        members.setdefault(form, []).append(number)
    if len(members) == 1:
        return [Scan(form, snapshot.paths) for form in members]
    return [
        Scan(form, paths.filter(pa.array(np.isin(numbers, numbers_of_form))).to_pylist())
        for form, numbers_of_form in members.items()
    ]


def _commits(paths: pa.Array) -> pa.Array:
    """The commit that wrote each file; a file whose name does not tell stands for itself."""
    return pc.coalesce(pc.struct_field(pc.extract_regex(paths, _INSTANT), "instant"), paths)


def _forms(
    store: Store, snapshot: Snapshot, samples: Mapping[str, str], schema: pa.Schema
) -> list[pa.Schema]:
    """The form in which each commit stored the columns, given one file of each."""
    written_with = snapshot.written_with
    known = {commit: written_with[InstantTime(commit)] for commit in samples if commit in written_with}
    forms = {text: schema_in_file(schema, _parse_schema(text)) for text in set(known.values())}
    unknown = [commit for commit in samples if commit not in known]
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        footers = dict(
            zip(
                unknown,
                pool.map(lambda commit: read_stored_schema(store, samples[commit]), unknown),
                strict=True,
            )
        )
    return [
        forms[known[commit]] if commit in known else schema_in_file(schema, footers[commit])
        for commit in samples
    ]


def _parse_schema(text: str) -> pa.Schema:
    with report_damage("the schema in a commit cannot be read"):
        return arrow_schema(text)
