"""Holdfast: lakehouse tables, on Spark, that you can always take back."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast import errors as errors  # `holdfast.errors` without an import of its own

if TYPE_CHECKING:
    from holdfast.dropin import write as write
    from holdfast.lake import Table, create_table, open_table, table_exists
    from holdfast.model.instant import Instant
    from holdfast.model.pushes import Push
    from holdfast.model.reports import (
        ArchiveReport,
        CleanPlan,
        CleanReport,
        Commit,
        RepairReport,
        RestorePlan,
        RestoreReport,
        RollbackReport,
        Savepoint,
        VerifyReport,
    )
    from holdfast.statements.catalog import register
    from holdfast.statements.run import sql
    from holdfast.streams import stream as stream

__version__ = "0.1.0"

__all__ = [
    "ArchiveReport",
    "CleanPlan",
    "CleanReport",
    "Commit",
    "Instant",
    "Push",
    "RepairReport",
    "RestorePlan",
    "RestoreReport",
    "RollbackReport",
    "Savepoint",
    "Table",
    "VerifyReport",
    "create_table",
    "open_table",
    "register",
    "sql",
    "stream",
    "table_exists",
    "write",
]

_HOMES = {
    "ArchiveReport": "holdfast.model.reports",
    "CleanPlan": "holdfast.model.reports",
    "CleanReport": "holdfast.model.reports",
    "Commit": "holdfast.model.reports",
    "Instant": "holdfast.model.instant",
    "Push": "holdfast.model.pushes",
    "RepairReport": "holdfast.model.reports",
    "RestorePlan": "holdfast.model.reports",
    "RestoreReport": "holdfast.model.reports",
    "RollbackReport": "holdfast.model.reports",
    "Savepoint": "holdfast.model.reports",
    "Table": "holdfast.lake",
    "VerifyReport": "holdfast.model.reports",
    "create_table": "holdfast.lake",
    "open_table": "holdfast.lake",
    "register": "holdfast.statements.catalog",
    "sql": "holdfast.statements.run",
    "stream": "holdfast.streams",
    "table_exists": "holdfast.lake",
    "write": "holdfast.dropin",
}


def __getattr__(name: str) -> Any:
    # Names are fetched when first used, so that a command that needs one module loads one.
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "errors"])
