"""What every decoder of this package says about bytes it cannot accept."""


class Malformed(ValueError):
    """The bytes are not what the format says.

    Decoders do not know the file's name. Whoever read the file knows it, and
    turns this into `TableDamaged`.
    """
