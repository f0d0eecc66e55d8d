"""The catalog of statements: which path a name stands for.

    warehouse: lake            # a name stands for the table in the folder of that name, if there is one
    tables:
      trips: lake/trips        # or for the path that is given here
    exclusive: true            # nothing but these tables can be named

Names are compared without case, as Spark does.
"""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from holdfast.config.documents import Section, read_document
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.lake import table_exists

_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    tables: Mapping[str, str] = field(default_factory=dict)
    """Name → path."""
    warehouse: str = ""
    """The folder of tables that are made without a path; empty if there is none."""
    exclusive: bool = False
    """Whether other tables, paths and files cannot be reached."""
    file: str = ""
    """Where it was read from; tables outside of the warehouse are noted there."""
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, name: str) -> str | None:
        """The path of a table; None if there is no such name."""
        wanted = name.lower()
        listed = next((path for known, path in self._all().items() if known.lower() == wanted), None)
        if listed is not None:
            return listed
        if not self.warehouse or not is_name(name):
            return None
        path = self.path_in_warehouse(name)
        return path if table_exists(path, storage_options=self.storage_options) else None

    def path_in_warehouse(self, name: str) -> str:
        if not is_name(name):
            raise InvalidRequest(
                "not a name for a table", name=name, hint="use letters, digits and underscores"
            )
        return f"{self.warehouse.rstrip('/')}/{name.lower().replace('.', '/')}"

    def names(self) -> dict[str, str]:
        """Every name that is written down or registered, with its path, in their order."""
        known = {name.lower(): path for name, path in self._all().items()}
        if self.warehouse and "://" not in self.warehouse and os.path.isdir(self.warehouse):
            for entry in sorted(os.listdir(self.warehouse)):
                path = f"{self.warehouse.rstrip('/')}/{entry}"
                if is_name(entry) and os.path.isdir(f"{path}/.hoodie"):
                    known.setdefault(entry.lower(), path)
        return dict(sorted(known.items()))

    def note(self, name: str, path: str) -> None:
        """Let a name stand for a path from now on."""
        if self.warehouse and path == self.path_in_warehouse(name):
            return
        if self.file:
            _edit_file(self.file, lambda tables: tables | {name: path})
        else:
            register(name, path)

    def forget(self, name: str) -> None:
        """The name stands for nothing any more."""
        if self.file:
            _edit_file(self.file, lambda tables: _without(tables, name))
        with _LOCK:
            for known in [known for known in _REGISTERED if known.lower() == name.lower()]:
                del _REGISTERED[known]

    def _all(self) -> dict[str, str]:
        if self.exclusive:
            return dict(self.tables)
        with _LOCK:
            return {**_REGISTERED, **self.tables}


_REGISTERED: dict[str, str] = {}
_LOCK = threading.Lock()


def register(name: str, path: str) -> None:
    """Let statements of this process call the table at a path by a name."""
    if not is_name(name):
        raise InvalidRequest("not a name for a table", name=name, hint="use letters, digits and underscores")
    with _LOCK:
        _REGISTERED[name] = path


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def open_catalog(given: object = None, *, storage_options: Mapping[str, str] | None = None) -> Catalog:
    """A catalog that is given as such, as names with paths, or as a YAML file."""
    match given:
        case None:
            catalog = Catalog()
        case Catalog():
            catalog = given
        case str() | os.PathLike():
            catalog = _read_catalog(os.fspath(given))
        case Mapping():
            catalog = Catalog(tables={str(name): str(path) for name, path in given.items()})
        case _:
            raise InvalidRequest(
                "not a catalog", given=repr(given), hint="give a YAML file or names with paths"
            )
    for name in catalog.tables:
        if not is_name(name):
            raise InvalidOption(
                "not a name for a table", name=name, hint="use letters, digits and underscores"
            )
    return replace(catalog, storage_options=storage_options) if storage_options else catalog


def _read_catalog(file: str) -> Catalog:
    document = read_document(file, may_be_empty=True)
    section = Section(document, os.path.dirname(os.path.abspath(file)))
    listed = section.read("tables", _names) or {}
    tables = {name: section.place(path) for name, path in listed.items()}
    warehouse = section.read("warehouse", section.place) or ""
    exclusive = section.read("exclusive", _flag) or False
    section.finish()
    return Catalog(tables=tables, warehouse=warehouse, exclusive=exclusive, file=file)


def _names(value: object) -> dict[str, str]:
    if isinstance(value, Mapping) and all(isinstance(path, str) for path in value.values()):
        return {str(name): str(path) for name, path in value.items()}
    raise ValueError("names with their paths are wanted")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("true or false is wanted")


def _without(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {known: path for known, path in tables.items() if known.lower() != name.lower()}


def _edit_file(file: str, edit: Any) -> None:
    """Write the catalog anew, as a whole or not at all. Comments in it are lost."""
    document = dict(read_document(file, may_be_empty=True).values)
    document["tables"] = edit(document.get("tables") or {})
    draft = f"{file}.{os.getpid()}.draft"
    with open(draft, "wb") as out:
        out.write(msgspec.yaml.encode(document))
        out.flush()
        os.fsync(out.fileno())
    os.replace(draft, file)
