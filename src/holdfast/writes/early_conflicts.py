"""Early conflict detection: two writers on one file group find out while they write.

A task that has left its marker looks for markers of older writes on the same
file group. The younger one gives way, so one of the two goes on. What is
missed here is found when the write is committed; this only saves work.
"""

from holdfast.concurrency.heartbeats import decode_beat
from holdfast.config.write import WriteSettings
from holdfast.errors import WriteConflict
from holdfast.model.instant import InstantTime
from holdfast.model.names import heartbeat_path, in_partition, marker_folder, marker_path
from holdfast.storage.store import Store, read_or_none
from holdfast.table.markers import MERGE, instants_with_markers


def refuse_if_rival_writes(
    store: Store,
    instant: InstantTime,
    data_path: str,
    file_id: str,
    settings: WriteSettings,
    *,
    kind: str = MERGE,
) -> None:
    """`WriteConflict` if an older write that shows signs of life has announced the same file group.

    To be called when the marker of `data_path` is left: its age shows storage's time.
    """
    mine = store.stat(marker_path(instant, data_path, kind))
    now_ms = 0 if mine is None else mine.modified_ms
    partition = data_path.rpartition("/")[0]
    older = [rival for rival in instants_with_markers(store) if rival < instant]
    for rival in older:
        is_announced = _has_announced(store, rival, partition, file_id)
        if is_announced and _is_beating(store, rival, now_ms, settings.heartbeat_timeout_ms):
            raise WriteConflict(
                "another write is working on the same file group",
                instant=instant,
                other=rival,
                file_group=in_partition(partition, file_id),
                hint="nothing of this write is visible; run it again when the other has finished",
            )


def _has_announced(store: Store, rival: InstantTime, partition: str, file_id: str) -> bool:
    folder = f"{marker_folder(rival)}/{partition}".rstrip("/")
    files = store.folder(folder).files
    # The name of a log file begins with a dot.
    names = (file.path.rpartition("/")[2].removeprefix(".") for file in files)
    return any(name.startswith(f"{file_id}_") for name in names)


def _is_beating(store: Store, rival: InstantTime, now_ms: int, timeout_ms: int) -> bool:
    path = heartbeat_path(rival)
    file, content = store.stat(path), read_or_none(store, path)
    if file is None or content is None:
        return False
    beat = decode_beat(content)
    return now_ms - file.modified_ms <= max(timeout_ms, 0 if beat is None else beat.timeout_ms)
