"""Which log files of a slice a snapshot reads rows of: later writes add others to the same slice."""

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.instant import InstantTime
from holdfast.table.log_files import find_writers
from holdfast.table.view import View


def with_counted_logs(view: View, slices: pa.Table, as_of: InstantTime | None = None) -> pa.Table:
    """Slices that `latest` gave, with those of their log files alone that the snapshot reads rows of."""
    paths = pc.list_flatten(slices["logs"]).to_pylist()
    if not paths or view.store is None:
        return slices
    instants = view.log_instants(slices, as_of)
    writers = find_writers(view.store, paths)
    counted = {path for path in paths if any(map(instants.counts, writers[path]))}
    logs = [[path for path in each if path in counted] for each in slices["logs"].to_pylist()]
    at = slices.schema.get_field_index("logs")
    return slices.set_column(
        at, slices.schema.field("logs"), pa.array(logs, slices.schema.field("logs").type)
    )
