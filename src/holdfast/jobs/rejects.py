"""The rows that a pipeline did not take, in a file beside it, each with its place and the reason."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from holdfast.config.pipeline import Rejects
from holdfast.jobs.ingested import address_of
from holdfast.jobs.source_files import SourceFile
from holdfast.model.names import META_FOLDER
from holdfast.storage.open import location_of, open_store


def write_rejects(
    rejects: Rejects, pipeline: str, files: Sequence[SourceFile], rows: Sequence[Mapping[str, object]]
) -> str:
    """Write one JSON document per row; the address of the file.

    Its name comes from the files that were read: a run that is repeated writes
    it again instead of beside it.
    """
    seen = sorted((address_of(file), file.size, file.modified_ms) for file in files)
    digest = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
    name = f"{pipeline}-{digest}.jsonl"
    store = open_store(location_of(rejects.path, rejects.storage_options))
    # A run that was killed may have left its half; no other program should take the folder for a table.
    store.sweep_leftovers()
    store.put(name, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode())
    store.prune(META_FOLDER)
    return store.uri(name)
