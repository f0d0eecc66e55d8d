"""One file slice. Tasks that write files know slices by this alone, without the view of a table."""

from dataclasses import dataclass

from holdfast.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file with the log files of its instant, or log files alone.

    Made from a row of `table.view.SLICES` where slices are handled one at a time.
    """

    partition: str
    file_id: str
    instant: InstantTime
    base: str | None
    size: int | None = None
    """Of the base file; None where only the listing knows it."""
    logs: tuple[str, ...] = ()
    log_bytes: int | None = None
    """Of the log files together; None where nobody asked for it."""

    @property
    def files(self) -> tuple[str, ...]:
        """All of its files, the base file first."""
        return self.logs if self.base is None else (self.base, *self.logs)

    @property
    def bytes(self) -> int:
        """Of all of its files, as far as it is known."""
        return (self.size or 0) + (self.log_bytes or 0)

    @property
    def home(self) -> str:
        """The file that rows are routed to: the base file, or the first log file where there is none."""
        return self.logs[0] if self.base is None else self.base

    @property
    def path(self) -> str:
        """The base file, where every slice has one: in a copy-on-write table, or without log files."""
        assert self.base is not None, "slices without a base file are left out before"
        return self.base
