"""The partition metafile: the file that makes a folder a partition.

Hudi finds partitions by looking for it. When it was written is of no
consequence to anybody.
"""

import datetime as dt
import re
from dataclasses import dataclass

from holdfast.format.malformed import Malformed
from holdfast.format.properties import java_date, parse_properties, render_properties
from holdfast.model.instant import InstantTime

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"

_TIME_TEXT = re.compile(r"[0-9]+")
_DEPTH_TEXT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class PartitionMetafile:
    commit_time: InstantTime
    """The instant that first wrote to the partition."""
    depth: int
    """How many segments the partition's path has; 0 for the root."""


def encode_partition_metafile(metafile: PartitionMetafile, *, moment: dt.datetime) -> bytes:
    values = {_COMMIT_TIME: str(metafile.commit_time), _DEPTH: str(metafile.depth)}
    return render_properties(values, comments=("partition metadata", java_date(moment)))


def decode_partition_metafile(content: bytes) -> PartitionMetafile:
    values = parse_properties(content)
    commit_time = values.get(_COMMIT_TIME, "")
    depth = values.get(_DEPTH, "")
    if not _TIME_TEXT.fullmatch(commit_time):
        raise Malformed(f"the partition metafile has the commit time {commit_time!r}")
    if not _DEPTH_TEXT.fullmatch(depth):
        raise Malformed(f"the partition metafile has the depth {depth!r}")
    return PartitionMetafile(InstantTime(commit_time), int(depth))
