"""Which file slice a log file belongs to, where its name tells only which write made it.

So it is in timelines with completion times: the log file belongs to the newest
slice that had been requested when its write was completed. A slice begins with
a base file of a commit that stands. Where there was none, the log files make a
slice by themselves, which has the time of the oldest of them.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.model.instant import InstantTime

Numbers = npt.NDArray[np.int64]

_SECONDS = 10**14


def place_logs(logs: pa.Table, slices: pa.Table, completions: Mapping[InstantTime, InstantTime]) -> pa.Table:
    """The log files with the instants of their slices, in the order in which they apply.

    Given are log files whose `instant` is that of the write, the slices with a base file, and when
    each write was completed. `TableDamaged` if that is not known of one: guessing loses rows.
    """
    writers = logs["instant"].combine_chunks().dictionary_encode()
    ends = [completions.get(time) for time in writers.dictionary.to_pylist()]
    if None in ends:
        unknown = writers.dictionary[ends.index(None)].as_py()
        at = pc.index(logs["instant"], unknown).as_py()
        raise TableDamaged(
            "nothing tells when the write of a log file was completed, and so to which slice it belongs",
            file=logs["path"][at].as_py(),
            instant=unknown,
            hint="copy the archived timeline again from where the table came from",
        )
    completed = _numbers(pa.array(ends, pa.string())).take(writers.indices.to_numpy())
    logs = _sort(logs, completed)
    completed = np.sort(completed, kind="stable")
    groups = _groups(pa.concat_tables([each.select(["partition", "file_id"]) for each in (slices, logs)]))
    requested = _numbers(logs["instant"].combine_chunks())
    begun = _numbers(slices["instant"].combine_chunks())
    count = slices.num_rows
    # By group and time, a base file before the log files that follow it at the same time.
    order = np.lexsort(
        (
            np.arange(len(groups)),
            np.concatenate([np.zeros(count), np.ones(len(logs))]),
            np.concatenate([begun, completed]),
            groups,
        )
    )
    is_base = order < count
    last = np.maximum.accumulate(np.where(is_base, np.arange(len(order)), -1))
    bases = np.where(last >= 0, order[np.maximum(last, 0)], -1)
    has_base = (bases >= 0) & (groups[np.maximum(bases, 0)] == groups[order])
    of_log = np.full(len(logs), -1, dtype=np.int64)
    of_log[order[~is_base] - count] = np.where(has_base, bases, -1)[~is_base]
    instants = logs["instant"].to_numpy().copy()
    with_base = of_log >= 0
    instants[with_base] = slices["instant"].to_numpy()[of_log[with_base]]
    alone = np.flatnonzero(~with_base)
    alone = alone[np.lexsort((requested[alone], groups[count:][alone]))]
    _, first, owner = np.unique(groups[count:][alone], return_index=True, return_inverse=True)
    instants[alone] = instants[alone[first]][owner]
    at = logs.schema.get_field_index("instant")
    return logs.set_column(at, logs.schema.field("instant"), pa.array(instants, pa.string()))


def _sort(logs: pa.Table, completed: Numbers) -> pa.Table:
    """By completion, then by version, which is a number, then by the token of the attempt."""
    parts = pc.extract_regex(logs["path"].combine_chunks(), _ORDER)
    versions = pc.cast(pc.struct_field(parts, "version"), pa.int64())
    keys = pa.table(
        [pa.array(completed), versions, pc.struct_field(parts, "token")],
        names=["completed", "version", "token"],
    )
    return logs.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


_ORDER = r"\.log\.(?P<version>[0-9]+)(?:_(?P<token>[^_/.]*))?"


def _groups(rows: pa.Table) -> Numbers:
    """A number for the file group of each row."""
    joined = pc.binary_join_element_wise(rows["partition"], rows["file_id"], "/").combine_chunks()
    codes: Numbers = joined.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _numbers(instants: pa.Array) -> Numbers:
    """Instants to the millisecond; those of old tables end with the second and count as all of it."""
    numbers: Numbers = pc.cast(instants, pa.int64()).to_numpy()
    return np.where(numbers < _SECONDS, numbers * 1000 + 999, numbers)
