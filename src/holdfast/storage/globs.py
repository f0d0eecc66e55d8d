"""Globs: patterns over paths, in the dialect that Spark, Hadoop and Java's path matcher share.

*        any characters within a name         [abc] [a-z] [!a]   one of them, or none of them
?        one character within a name          {a,b*}             one of these patterns
**       any characters, across folders       \\x                 x itself
"""

import re

from holdfast.errors import InvalidRequest

_SPECIAL = re.compile(r"[*?\[{\\]")


def split_glob(path: str) -> tuple[str, str]:
    """The folder that a path's pattern is relative to, and the pattern, which is empty if there is none.

    `data/trips/*/day?.csv` is `data/trips` and `*/day?.csv`.
    """
    special = _SPECIAL.search(path)
    if special is None:
        return path, ""
    folder, slash, _ = path[: special.start()].rpartition("/")
    pattern = path[len(folder) + len(slash) :]
    return (folder or "/" if slash else "."), pattern


def glob_regex(pattern: str) -> re.Pattern[str]:
    """What a whole path must match. `InvalidRequest` if the pattern ends in the middle of something."""
    translated: list[str] = []
    braces = 0
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            is_deep = pattern.startswith("*", at)
            # `a/**/b` is meant to find `a/b`, too.
            is_folders = is_deep and pattern.startswith("*/", at) and pattern[at - 2 : at - 1] in ("", "/")
            translated.append("(?:.*/)?" if is_folders else ".*" if is_deep else "[^/]*")
            at += 2 if is_folders else 1 if is_deep else 0
        elif char == "?":
            translated.append("[^/]")
        elif char == "[":
            end = pattern.find("]", at + 2 if pattern[at : at + 1] in ("!", "^") else at + 1)
            if end < 0:
                raise _missing_end(pattern, char)
            translated.append(_one_of(pattern[at:end]))
            at = end + 1
        elif char == "{":
            braces += 1
            translated.append("(?:")
        elif char == "}" and braces:
            braces -= 1
            translated.append(")")
        elif char == "," and braces:
            translated.append("|")
        elif char == "\\":
            if at == len(pattern):
                raise _missing_end(pattern, char)
            translated.append(re.escape(pattern[at]))
            at += 1
        else:
            translated.append(re.escape(char))
    if braces:
        raise _missing_end(pattern, "{")
    try:
        return re.compile("".join(translated), re.DOTALL)
    except re.error as error:
        raise InvalidRequest("not a pattern of paths", pattern=pattern, cause=error) from error


def _one_of(characters: str) -> str:
    negation = "^" if characters[0] in "!^" else ""
    listed = characters[1:] if negation else characters
    escaped = "".join(char if char == "-" else re.escape(char) for char in listed)
    return f"(?!/)[{negation}{escaped}]"


def _missing_end(pattern: str, char: str) -> InvalidRequest:
    return InvalidRequest("a pattern of paths does not end", pattern=pattern, begins_with=char)
