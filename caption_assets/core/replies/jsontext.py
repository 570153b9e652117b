"""Reads the JSON in a model's reply as far as it has one meaning; says where it is cut or in doubt. Pure functions.

Models wrap JSON in prose, forget the backslashes of quotes, leave trailing commas, write Python's dicts, and are cut by
max_tokens. A repair library guesses in all of these; here a value is returned only where it can be read in one way, since a guess
may be half a caption or another picture's. The rule for quotes: one ends a string only if what follows can follow a string there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias


class Mark(Enum):
    """In place of a text. DOUBT: it can be read in more than one way. ABSENT: an object or list that holds none."""

    DOUBT = "doubt"
    ABSENT = "absent"


class Cut(NamedTuple):
    """A string whose end is missing."""

    text: str


class Literal(str):
    """A number, true or false, as written."""

    __slots__ = ()


@dataclass(slots=True)
class Members:
    """An object: its members in order, equal keys kept."""

    pairs: list[tuple[str, Node]] = field(default_factory=list)


Node: TypeAlias = "str | Literal | Cut | Mark | Members | list[Node] | None"


class Ending(Enum):
    """How the reading ended. CUT: the text ends inside a value. BROKEN: from some point on it could not be read."""

    WHOLE = "whole"
    CUT = "cut"
    BROKEN = "broken"


class Found(NamedTuple):
    """Objects and arrays at the top level of the text, in order; start and end of the first one, in characters."""

    nodes: list[Node]
    ending: Ending
    start: int
    end: int


_SPACE = re.compile(r"\s*")
_START = re.compile(r"\{\s*[\"'\w}]|\[\s*[\[{\"']")
_BARE_KEY = re.compile(r"\w{1,24}(?=\s*:)")
_LITERAL = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|True|False|null|None)(?=\s*(?:[,}\]]|$))")
_NEXT_KEY = r"(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|\w{1,24})\s*:"
_NEXT_MEMBER = re.compile(rf"\s*,\s*(?:{_NEXT_KEY}|\}})|\s*\n\s*{_NEXT_KEY}")
_KEY_CUT_SHORT = re.compile(r"\s*,\s*(?:[\"'][A-Za-z_ ]{0,12}\d{0,3}[\"']?\s*)?$")
_NEXT_ITEM = re.compile(r"\s*(?:,\s*[\[{\"'\]\-\dtfnTFN]|\])")
_MEMBERS_INSIDE = re.compile(r"[\"']\s*:")
_END_OF_OBJECT = re.compile(r"\s*,?\s*\}")
_AFTER_LAST = re.compile(r"\s*(?:$|```|~~~|<|[,}\]])|[^\S\n]*\n\s*[{\[]")
_PROSE_LINE = re.compile(r"[^\S\n]*\n")
_STRING_GOES_ON = re.compile(r"[\"']\s*[,}]")
_ESCAPE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_MAX_DEPTH = 8


class _Unreadable(Exception):
    pass


class _EndOfText(Exception):
    pass


def read(text: str, finished: bool) -> Found:
    """All objects and arrays of `text` outside of one another. finished: whether the model ended its reply by itself."""
    nodes: list[Node] = []
    first = (0, 0)
    at = 0
    while start := _START.search(text, at):
        reader = _Reader(text, start.start(), finished)
        node: Node = Members() if text[start.start()] == "{" else []
        ending = Ending.WHOLE
        try:
            reader.fill(node, 0)
        except _EndOfText:
            ending = Ending.CUT
        except _Unreadable:
            if not reader.committed:  # a brace in prose
                at = start.start() + 1
                continue
            ending = Ending.BROKEN
        if not nodes:
            first = (start.start(), reader.at)
        nodes.append(node)
        if ending is not Ending.WHOLE:
            return Found(nodes, ending, *first)
        at = reader.at
    return Found(nodes, Ending.WHOLE, *first)


def ends_well(text: str, at: int, finished: bool) -> bool:
    """Whether a closing brace that ends just before `at` can be the last one of an answer, by what follows it.

    Not, if it seems to stand inside of a string whose quotes were not escaped.
    """
    if _AFTER_LAST.match(text, at):
        return True
    if not finished:
        return False
    return _PROSE_LINE.match(text, at) is not None or _STRING_GOES_ON.search(text, at) is None


class _Reader:
    """Recursive descent over one object or array; containers are filled as they are read, so that what was whole stays."""

    def __init__(self, text: str, at: int, finished: bool) -> None:
        self.text = text
        self.at = at
        self.finished = finished
        self.committed = False
        """Whether this is surely JSON and no brace in prose."""
        self.last = at
        """Where the last value ended."""

    def fill(self, node: Node, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Unreadable
        if isinstance(node, Members):
            self._fill_object(node, depth)
        elif isinstance(node, list):
            self._fill_array(node, depth)

    def _fill_object(self, node: Members, depth: int) -> None:
        self.at += 1
        while self._peek() != "}":
            key = self._key()
            if self._peek() != ":":
                raise _Unreadable
            self.at += 1
            self._value(node.pairs, key, depth)
            try:
                self._separator("}")
            except _Unreadable:  # then the value may not have ended there
                node.pairs[-1] = (key, Mark.DOUBT)
                raise
        self.at += 1

    def _fill_array(self, node: list[Node], depth: int) -> None:
        self.at += 1
        while self._peek() != "]":
            pairs: list[tuple[str, Node]] = []
            try:
                self._value(pairs, None, depth)
            finally:
                node.extend(value for _, value in pairs)
            self._separator("]")
        self.at += 1

    def _peek(self) -> str:
        """The next character that is no space."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        if self.at >= len(self.text):
            raise _EndOfText
        return self.text[self.at]

    def _separator(self, end: str) -> None:
        following = self._peek()
        if following == ",":
            self.at += 1
        elif following != end and not (end == "}" and "\n" in self.text[self.last : self.at]):
            raise _Unreadable

    def _key(self) -> str:
        if self._peek() in "\"'":
            self.committed = True
            quote = self.text[self.at]
            end = self.text.find(quote, self.at + 1)
            if end < 0:
                if "\n" in self.text[self.at :] or len(self.text) - self.at > 60:
                    raise _Unreadable
                raise _EndOfText
            key = self.text[self.at + 1 : end]
            self.at = end + 1
            return _unescaped(key)
        bare = _BARE_KEY.match(self.text, self.at)
        if bare is None:
            raise _Unreadable
        self.committed |= bare[0].isdecimal()
        self.at = bare.end()
        return bare[0]

    def _value(self, pairs: list[tuple[str, Node]], key: str | None, depth: int) -> None:
        """Reads one value and adds it to `pairs`; a container is added before it is filled."""
        following = self._peek()
        name = key or ""
        if following in "{[":
            inner: Node = Members() if following == "{" else []
            pairs.append((name, inner))
            self.fill(inner, depth + 1)
        elif following in "\"'":
            self._string(pairs, name, in_object=key is not None, top=depth == 0)
        else:
            literal = _LITERAL.match(self.text, self.at)
            if literal is None or (literal.end() == len(self.text) and not self.finished):
                pairs.append((name, Mark.DOUBT))
                raise _Unreadable if literal is None else _EndOfText
            self.at = literal.end()
            pairs.append((name, None if literal[0] in ("null", "None") else Literal(literal[0])))
        self.last = self.at

    def _string(self, pairs: list[tuple[str, Node]], name: str, in_object: bool, top: bool) -> None:
        quote, begin = self.text[self.at], self.at + 1
        self.committed = True
        inner = 0
        at = begin
        while (at := _next_quote(self.text, quote, at)) >= 0:
            if self._ends_string(at + 1, in_object, top, inner):
                break
            # an apostrophe within a word does not count as a quotation
            inner += quote == '"' or not (self.text[at - 1].isalnum() and self.text[at + 1 : at + 2].isalnum())
            at += 1
        if at < 0:
            pairs.append((name, Cut(_unescaped(self.text[begin:]))))
            raise _EndOfText
        self.at = at + 1
        if inner and (inner % 2 or not in_object or _MEMBERS_INSIDE.search(self.text, begin, at)):
            pairs.append((name, Mark.DOUBT))  # quotes that were not escaped, and the string may as well end at one of them
            raise _Unreadable
        if self.at >= len(self.text.rstrip()) and not self.finished:
            pairs.append((name, Cut(_unescaped(self.text[begin:at]))))  # cut after a quote, which may be one of the text
            raise _EndOfText
        pairs.append((name, _unescaped(self.text[begin:at])))

    def _ends_string(self, at: int, in_object: bool, top: bool, inner: int) -> bool:
        """Whether a quote before `at` ends the string, by what follows."""
        text = self.text
        if _SPACE.fullmatch(text, at):
            return True
        if not in_object:
            return _NEXT_ITEM.match(text, at) is not None
        if _NEXT_MEMBER.match(text, at):
            return True
        if not (brace := _END_OF_OBJECT.match(text, at)):
            return not self.finished and inner == 0 and _KEY_CUT_SHORT.match(text, at) is not None
        if not top:
            return inner == 0 or _AFTER_LAST.match(text, brace.end()) is not None
        return ends_well(text, brace.end(), self.finished and inner == 0)


def _next_quote(text: str, quote: str, at: int) -> int:
    """Where the next quote stands that no backslash escapes, or -1."""
    while (at := text.find(quote, at)) >= 0:
        slashes = at
        while slashes and text[slashes - 1] == "\\":
            slashes -= 1
        if (at - slashes) % 2 == 0:
            return at
        at += 1
    return -1


def _unescaped(raw: str) -> str:
    """JSON's escapes decoded; surrogates that have no partner stay, unknown escapes stay as written."""

    def decode(match: re.Match[str]) -> str:
        if match[1]:
            return chr(0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00)
        if match[3]:
            return chr(int(match[3], 16))
        return _SHORT.get(match[4], match[0])

    return _ESCAPE.sub(decode, raw) if "\\" in raw else raw
