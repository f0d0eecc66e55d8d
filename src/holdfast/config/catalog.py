"""The catalog: names of lake tables and where they are, in a file of its own or in another one.

    tables: {trips: lake/trips}

Relative paths are relative to the folder of the file that names them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from holdfast.config import values
from holdfast.config.documents import Section, read_document

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    tables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where each is, by its name."""


def load_catalog(path: str | os.PathLike[str]) -> Catalog:
    """The catalog in a file."""
    top = Section(read_document(path), os.path.dirname(os.path.abspath(path)))
    catalog = parse_catalog(top)
    top.finish()
    return catalog


def read_catalog(top: Section, key: str = "catalog") -> Catalog:
    """The catalog that a key of another file holds, or whose file it names."""
    given: Any = top.read(key, lambda value: value)
    if isinstance(given, str):
        loaded = top.read(key, lambda value: load_catalog(values.place(value, top.folder)))
        assert loaded is not None, "the key is there"
        return loaded
    return top.section(key, parse_catalog) or Catalog()


def parse_catalog(part: Section) -> Catalog:
    """The catalog that a mapping holds."""
    tables = part.read("tables", _names) or {}
    return Catalog(tables=MappingProxyType({name: part.place(path) for name, path in tables.items()}))


def is_name(text: str) -> bool:
    """Whether a table may have this name in a catalog."""
    return bool(_NAME.fullmatch(text))


def _names(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("not a mapping of names to paths")
    for name in value:
        if not is_name(str(name)):
            raise ValueError(f"{name!r} is not the name of a table: letters, digits, _, . and -")
    return {str(name): values.text(path) for name, path in value.items()}
