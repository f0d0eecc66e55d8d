"""Markers: one small file left before each data file, naming it.

A task that dies cannot say what it wrote. The markers of an instant are the
only complete inventory of the files its attempts may have left.
"""

from dataclasses import dataclass

from holdfast.errors import StorageUnavailable, TableDamaged
from holdfast.model.instant import InstantTime
from holdfast.model.names import TEMP_FOLDER, marker_folder, marker_path, parse_marker
from holdfast.storage.store import Store

CREATE = "CREATE"
MERGE = "MERGE"
APPEND = "APPEND"
_TYPE_FILE = "MARKERS.type"
_SERVER_KIND = "TIMELINE_SERVER_BASED"


@dataclass(frozen=True, slots=True)
class Marker:
    data_path: str
    kind: str


def leave_marker(store: Store, instant: InstantTime, data_path: str, *, kind: str = CREATE) -> None:
    store.create(marker_path(instant, data_path, kind), b"")


def read_markers(store: Store, instant: InstantTime) -> tuple[Marker, ...]:
    """The markers of an instant: one file each, or lines of the files Hudi's server writes."""
    folder = marker_folder(instant)
    paths = store.paths(folder)
    names = [path[len(folder) + 1 :] for path in paths]
    if _TYPE_FILE in names:
        names = _server_markers(store, folder, names)
    parsed = [parse_marker(name) for name in names]
    return tuple(Marker(*found) for found in parsed if found is not None)


def instants_with_markers(store: Store) -> tuple[InstantTime, ...]:
    folders = store.folder(TEMP_FOLDER).folders
    names = [path.rpartition("/")[2] for path in folders]
    return tuple(InstantTime(name) for name in names if name.isdigit())


def delete_markers(store: Store, instant: InstantTime) -> None:
    folder = marker_folder(instant)
    failed = store.delete_all(store.paths(folder))
    store.prune(folder)
    if failed:
        raise StorageUnavailable("markers could not be removed", instant=instant, first=failed[0])


def _server_markers(store: Store, folder: str, names: list[str]) -> list[str]:
    path = f"{folder}/{_TYPE_FILE}"
    kind = store.read(path).decode("utf-8", "replace").strip()
    if kind != _SERVER_KIND:
        raise TableDamaged("unknown kind of markers", file=path, kind=kind)
    batches = [name for name in names if name.startswith("MARKERS") and name != _TYPE_FILE]
    lines = [line for name in batches for line in store.read(f"{folder}/{name}").decode().splitlines()]
    return [line.strip() for line in lines if line.strip()]
