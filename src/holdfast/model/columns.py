"""Names of columns: those that Avro's Java library takes, by which Hudi writes its schemas."""

import unicodedata

_LAST_CHARACTER = "\uffff"
"""Java looks at halves of the characters beyond, which are no letters."""


def is_column_name(name: str) -> bool:
    """Whether it is letters of any script, digits and underscores, and does not begin with a digit."""
    return (
        name != ""
        and (name[0] == "_" or _is_letter(name[0]))
        and all(each == "_" or _is_letter(each) or unicodedata.category(each) == "Nd" for each in name)
        and max(name) <= _LAST_CHARACTER
    )


def _is_letter(character: str) -> bool:
    return unicodedata.category(character).startswith("L")
