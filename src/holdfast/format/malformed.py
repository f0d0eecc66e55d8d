"""Bytes that are not what the format says, and the one step from there to `TableDamaged`."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import TableDamaged


class Malformed(ValueError):
    """The bytes are not what the format says.

    Decoders do not know the file's name. The caller that read the file knows
    it, and decodes under `report_damage`.
    """


@contextmanager
def report_damage(message: str, *, hint: str = "", **facts: object) -> Iterator[None]:
    """Turn `Malformed` into `TableDamaged`; the facts name the file."""
    try:
        yield
    except Malformed as error:
        raise TableDamaged(message, hint=hint, **facts, cause=error) from error
