"""All pages. The more particular path stands first."""

from holdfast.console.pages import care, entry, lineage, overview, pushes, query, storage, takeback, timeline
from holdfast.console.visits import Page

PAGES: tuple[Page, ...] = (
    *entry.PAGES,
    *overview.PAGES,
    *timeline.PAGES,
    *takeback.PAGES,
    *storage.PAGES,
    *lineage.PAGES,
    *pushes.PAGES,
    *query.PAGES,
    *care.PAGES,
)
