"""Documents: YAML files that people write, read safely, with the place of every value.

Plain values only, as in YAML 1.2: no tags, no dates, no key twice, nothing
that stands for more than it says (aliases are followed up to a bound). Every
error names the file, the line and the key; none quotes a line, which may
hold a secret. JSON is read, too.
"""

import difflib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from holdfast.config.values import place, secret, suggest_name
from holdfast.errors import InvalidOption

_FILE_BYTES_MAX = 1024 * 1024
_TEXT_MAX = 4 * _FILE_BYTES_MAX
_VALUES_MAX = 20_000
_DEPTH_MAX = 50

# A group of a pattern, in Pinot's templates of segment names, is none of ours.
_NAMED = re.compile(r"\$\{(?!filePathPattern:\\)([^{}]*)\}")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+)")
_WORDS = {"true": True, "false": False, "null": None}

_WHERE = ("file", "line", "key", "code")
"""Facts of an error about a value that its place in the document stands for."""

Value = TypeVar("Value")
Place = tuple[str | int, ...]
"""The keys and positions that lead to a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says. One that a program made has no file and no lines."""

    values: Mapping[str, Any]
    file: str = ""
    lines: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    """Of keys, and of what stands in lists."""
    text_lines: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    """Where texts begin: blocks after `|` and `>` do on the next line."""

    def wrong(self, place: Place, message: str, *, hint: str = "", **facts: object) -> InvalidOption:
        """The error about the value at a place; without a line of its own, that of what it is in."""
        ways = (place[:length] for length in range(len(place), 0, -1))
        line = next((self.lines[way] for way in ways if way in self.lines), 1)
        where: dict[str, Any] = {"file": self.file, "line": line} if self.file else {}
        return InvalidOption(message, hint=hint, **{**where, "key": key_path(place), **facts})


def read_document(
    path: str | os.PathLike[str],
    *,
    names: Mapping[str, str] | None = None,
    may_be_empty: bool = False,
    may_have_anchors: bool = True,
) -> Document:
    """What a YAML file says. With `names`, `${name}` within a value is replaced."""
    file = os.fspath(path)
    text = _text(file)
    try:
        node = _Loader(text, may_have_anchors=may_have_anchors).get_single_node()
    except yaml.YAMLError as error:
        raise _not_yaml(file, text, error) from error
    reading = _Reading(file, names)
    values = None if node is None else reading.value(node, ())
    if values is None and may_be_empty:
        return Document(values={}, file=file)
    if values is None:
        raise InvalidOption("the file is empty", file=file)
    if not isinstance(values, dict):
        raise InvalidOption("the file is not a mapping of keys to values", file=file, line=_line(node))
    return Document(values=values, file=file, lines=reading.lines, text_lines=reading.text_lines)


def key_path(place: Place) -> str:
    """`gates[0].min_rows`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


class Section:
    """One mapping of a document; a key that is not read by the end is unknown."""

    def __init__(self, document: Document | Mapping[str, Any], folder: str, *, place: Place = ()) -> None:
        """Relative paths are relative to `folder`."""
        document = document if isinstance(document, Document) else Document(values=document)
        values: Any = document.values
        for part in place:
            values = values[part]
        if not isinstance(values, Mapping):
            raise document.wrong(place, "not a mapping of keys to values")
        self._document = document
        self._values = values
        self._place = place
        self._read_keys: list[str] = []
        self.folder = folder

    def place(self, value: Any) -> str:
        """A path that is relative to the folder of the file, or stands for itself."""
        return place(value, self.folder)

    def secret(self, value: Any) -> str:
        """A secret, or what `env:NAME` or `file:PATH` names."""
        return secret(value, self.folder)

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def read(self, key: str, parse: Callable[[Any], Value]) -> Value | None:
        """The value of `key`, parsed; None if it is not there."""
        self._read_keys.append(key)
        return self._parse((key,), self._values[key], parse) if self.has(key) else None

    def require(self, key: str, parse: Callable[[Any], Value]) -> Value:
        """The value of `key`, parsed; refused if it is not there."""
        if not self.has(key):
            raise self.missing(key)
        value = self.read(key, parse)
        assert value is not None, "a parser returned nothing for a value"
        return value

    def each(self, key: str, parse: Callable[[Any], Value]) -> tuple[Value, ...]:
        """The values of a list, each parsed; none if it is not there."""
        return tuple(self._parse((key, at), value, parse) for at, value in enumerate(self._items(key)))

    def section(self, key: str, parse: Callable[["Section"], Value]) -> Value | None:
        """A mapping within this one, parsed; None if it is not there."""
        self._read_keys.append(key)
        return self._section((key,), parse) if self.has(key) else None

    def require_section(self, key: str, parse: Callable[["Section"], Value]) -> Value:
        """A mapping within this one, parsed; refused if it is not there."""
        if not self.has(key):
            raise self.missing(key)
        self._read_keys.append(key)
        return self._section((key,), parse)

    def sections(self, key: str, parse: Callable[["Section"], Value]) -> tuple[Value, ...]:
        """A list of mappings, each parsed; none if it is not there."""
        return tuple(self._section((key, at), parse) for at, _ in enumerate(self._items(key)))

    def text_line(self, key: str) -> int:
        """Where the text of `key` begins in the file; 0 if there is none."""
        return self._document.text_lines.get((*self._place, key), 0)

    def wrong(self, key: str, message: str, *, hint: str = "", **facts: object) -> InvalidOption:
        """The error about `key`."""
        return self._document.wrong((*self._place, key), message, hint=hint, **facts)

    def missing(self, key: str) -> InvalidOption:
        """The error about a key that is not there, or is misspelled."""
        misspelled = difflib.get_close_matches(key, map(str, self._unknown()), n=1, cutoff=0.6)
        if misspelled:
            return self.wrong(misspelled[0], "unknown key", hint=f"did you mean {key}?")
        return self.wrong(key, "a key is missing")

    def finish(self) -> None:
        """Refuse a key that was not read."""
        for key in self._unknown():
            raise self.wrong(str(key), "unknown key", hint=suggest_name(str(key), self._read_keys))

    def _unknown(self) -> Iterator[object]:
        return (key for key in self._values if key not in self._read_keys)

    def _items(self, key: str) -> Sequence[Any]:
        items = self.read(key, lambda value: value)
        if items is None:
            return ()
        if isinstance(items, list | tuple):
            return items
        raise self.wrong(key, "not a list")

    def _section(self, place: Place, parse: Callable[["Section"], Value]) -> Value:
        part = Section(self._document, self.folder, place=(*self._place, *place))
        parsed = parse(part)
        part.finish()
        return parsed

    def _parse(self, place: Place, value: Any, parse: Callable[[Any], Value]) -> Value:
        whole = (*self._place, *place)
        try:
            return parse(value)
        except InvalidOption as error:
            facts = {name: fact for name, fact in error.facts.items() if name not in _WHERE}
            if isinstance(value, Mapping) and facts.get("option") in value:
                whole = (*whole, str(facts.pop("option")))
            raise self._document.wrong(whole, error.message, hint=error.hint, **facts) from error
        except (ValueError, TypeError) as error:
            raise self._document.wrong(whole, "a value is wrong", cause=str(error)) from error


class _Loader(yaml.BaseLoader):  # type: ignore[misc]  # PyYAML brings no types
    """Nodes of texts; `_Reading` makes values of them."""

    def __init__(self, text: str, *, may_have_anchors: bool) -> None:
        super().__init__(text)
        self._may_have_anchors = may_have_anchors
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None and not self._may_have_anchors:
            raise _fault("anchors are not used here", event)
        if getattr(event, "tag", None) is not None:
            raise _fault("tags are not used here", event)
        if self._depth > _DEPTH_MAX:
            raise _fault("nested too deeply", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reading:
    """Nodes to values, and the line of each."""

    def __init__(self, file: str, names: Mapping[str, str] | None) -> None:
        self._file = file
        self._names = names
        self._characters = 0
        self.lines: dict[Place, int] = {}
        self.text_lines: dict[Place, int] = {}

    def value(self, node: Any, place: Place, above: tuple[Any, ...] = ()) -> Any:
        if any(node is outer for outer in above):
            raise self._wrong(node, place, "an alias leads back to itself")
        if len(above) > _DEPTH_MAX:
            raise self._wrong(node, place[:1], "nested too deeply")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, (*above, node))
        return [self._inner(item, item, (*place, at), (*above, node)) for at, item in enumerate(node.value)]

    def _mapping(self, node: Any, place: Place, above: tuple[Any, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._wrong(key, place, "a key is not a name")
            if key.value in values:
                raise self._wrong(key, (*place, key.value), "a key stands twice")
            values[key.value] = self._inner(key, value, (*place, key.value), above)
        return values

    def _inner(self, mark: Any, node: Any, place: Place, above: tuple[Any, ...]) -> Any:
        self.lines[place] = _line(mark)
        if len(self.lines) > _VALUES_MAX:
            raise self._wrong(mark, place[:1], "more values than a file may have", most=_VALUES_MAX)
        return self.value(node, place, above)

    def _scalar(self, node: Any, place: Place) -> Any:
        text = self._replace_names(node, place)
        self.text_lines[place] = _line(node) + (node.style in ("|", ">"))
        if node.style is not None:
            return text
        try:
            return _plain(text)
        except ValueError as error:
            raise self._wrong(node, place, "not a number that can be used") from error

    def _replace_names(self, node: Any, place: Place) -> str:
        """The text, with what the names in it stand for."""
        text = str(node.value)
        names = {} if self._names is None else self._names
        used = [] if self._names is None else _NAMED.findall(text)
        for name in used:
            if name not in names:
                raise self._wrong(node, place, "nothing is given for a name", name=name)
        # Counted before it is made: aliases and names stand for more than they say.
        self._characters += len(text) + sum(len(names[name]) for name in used)
        if self._characters > _TEXT_MAX:
            raise self._wrong(node, place[:1], "more text than a file may have", most=_TEXT_MAX)
        return _NAMED.sub(lambda match: names[match[1]], text) if used else text

    def _wrong(self, node: Any, place: Place, message: str, **facts: object) -> InvalidOption:
        return InvalidOption(
            message, hint="", file=self._file, line=_line(node), key=key_path(place), **facts
        )


def _plain(text: str) -> object:
    """What a text without quotes means in YAML 1.2. `no` and 2026-01-01 are texts, and stay as written."""
    if text in ("", "~"):
        return None
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("too large")
        return number
    return text


def _text(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            content = opened.read(_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidOption("the file cannot be read", file=file, cause=cause) from error
    if len(content) > _FILE_BYTES_MAX:
        raise InvalidOption("the file is too large", file=file, bytes_max=_FILE_BYTES_MAX)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidOption("the file is not text in UTF-8", file=file, line=line) from error


def _not_yaml(file: str, text: str, error: yaml.YAMLError) -> InvalidOption:
    """What is wrong and where, without the line itself: it may hold a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return InvalidOption("the file is not text", file=file, line=line, cause="a control character")
    mark, problem = error.problem_mark, error.problem
    written = text.split("\n")[mark.line : mark.line + 1]
    hint = ""
    if "\\t" in problem:
        hint = "indent with spaces"
    elif any("${" in line for line in written):
        hint = "within brackets and braces, a text with ${name} needs quotes"
    return InvalidOption("the file is not YAML", file=file, line=mark.line + 1, cause=problem, hint=hint)


def _fault(problem: str, event: Any) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, problem, event.start_mark)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
