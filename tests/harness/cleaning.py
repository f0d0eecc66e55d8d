"""A clean with the settings of cleaning alone, as most tests want it."""

from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.model.reports import CleanReport
from holdfast.services.clean.clean import clean as clean_table
from holdfast.table.opened import OpenTable


def clean(table: OpenTable, settings: CleanSettings) -> CleanReport | None:
    """The report; None if there was nothing to clean."""
    report = clean_table(table, WriteSettings(clean=settings))
    return None if report.instant is None else report
