"""Makes a page's text and words of what an engine returns: lines, reading order, and our own splitter's words."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import regex

from xai.attribution.align import split_words
from xai.attribution.ocr.engine import Piece, Polygon
from xai.attribution.ocr.flags import MIN_CONFIDENCE, flags_of
from xai.attribution.ocr.geometry import Frame, angle_of, bounding_box, checked, clipped
from xai.schema import Box, Word

SAME_ANGLE = math.radians(10)
"""Pieces whose directions differ by less are on lines of one direction."""
SAME_LINE = 0.5
"""Two pieces share a line when they overlap by this share of the lower one's height."""
SMALLEST_OF_A_LINE = 0.45
"""Of two heights on one line; a small line beside a tall letter is another line."""
COLUMN_GAP = 2.0
"""In heights of the text: a wider gap ends the line, since another column begins behind it."""
LETTER_GAP = 0.22
"""In heights of the text: a wider gap between two single letters parts two words."""

_INVISIBLE = regex.compile(r"[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_RIGHT_TO_LEFT = regex.compile(r"[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}]")
_LEFT_TO_RIGHT = regex.compile(r"[\p{L}\p{N}]")
_SPACELESS = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff01-\uff0f\uff1a-\uff1f]")
_GRAPHEME = regex.compile(r"\X")
_NARROW = frozenset("iljtfrI1.,:;'’!|()[]-ІіЇї ")
_WIDE = frozenset("mwMWШЩЖЮФшщжюф@%")


@dataclass(frozen=True)
class Reading:
    """The text of a page, its lines joined by line breaks, and its words in reading order."""

    text: str
    words: tuple[Word, ...]


def read_pieces(pieces: Iterable[Piece], size: tuple[int, int], *, min_confidence: float = MIN_CONFIDENCE) -> Reading:
    """The text and the words of a page.

    Pieces are gathered on lines by their overlap in the direction of the writing, lines ordered so that columns are
    not interleaved, and each line put in logical order. The line is then split by
    :func:`xai.attribution.align.split_words`, whatever the pieces were; a word that is part of a piece gets its
    share of the piece's polygon by the widths of its letters, and one of several pieces the rectangle around them.
    A word's confidence is the mean of its pieces', by their letters. Pieces without text are dropped.

    Args:
        size: (width, height) of the picture, into which polygons are clipped.
        min_confidence: words below it are flagged.

    Raises:
        ValueError: a polygon is not four corners of finite numbers, or a confidence lies outside 0 to 1.
    """
    text, words = "", []
    for line in _page(_usable(pieces)):
        if text:
            text += "\n"
        letters = _letters(line)
        string = "".join(letter.text for letter in letters)
        words += [
            _word(string, span, letters, line.frame, len(text), size, min_confidence) for span in split_words(string)
        ]
        text += string
    return Reading(text, tuple(words))


@dataclass(frozen=True)
class _Placed:
    """A piece with its bounding box in the frame of its line's direction."""

    piece: Piece
    box: Box

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]


@dataclass(frozen=True)
class _Line:
    frame: Frame
    pieces: list[_Placed]

    @property
    def extent(self) -> Box:
        x0, y0, x1, y1 = zip(*(placed.box for placed in self.pieces), strict=True)
        return min(x0), min(y0), max(x1), max(y1)

    @property
    def is_right_to_left(self) -> bool:
        text = "".join(placed.piece.text for placed in self.pieces)
        return len(_RIGHT_TO_LEFT.findall(text)) * 2 > len(_LEFT_TO_RIGHT.findall(text))


@dataclass(frozen=True)
class _Letter:
    """One code point of a line: which piece it is of, and where in it, as shares of its length along the writing."""

    text: str
    placed: _Placed | None = None
    start: float = 0.0
    end: float = 0.0


def _usable(pieces: Iterable[Piece]) -> list[Piece]:
    usable = []
    for piece in pieces:
        text = " ".join(_INVISIBLE.sub(" ", unicodedata.normalize("NFC", piece.text)).split())
        confidence = float(piece.confidence)
        if not 0 <= confidence <= 1:
            raise ValueError(f"an OCR engine gave {piece.text!r} the confidence {confidence}; it lies between 0 and 1")
        polygon = checked(piece.polygon)
        if text:
            usable.append(Piece(text, polygon, confidence))
    return usable


def _by_angle(pieces: Sequence[Piece]) -> Iterator[tuple[Frame, list[Piece]]]:
    """Groups of one direction; the direction is that of the group's longest piece, which is the surest."""
    left = sorted(pieces, key=lambda piece: -math.dist(piece.polygon[0], piece.polygon[1]))
    while left:
        frame = Frame(angle_of(left[0].polygon))
        turned = [_turn(angle_of(piece.polygon), frame.angle) >= SAME_ANGLE for piece in left]
        yield frame, [piece for piece, other in zip(left, turned, strict=True) if not other]
        left = [piece for piece, other in zip(left, turned, strict=True) if other]


def _turn(one: float, other: float) -> float:
    return abs((one - other + math.pi) % (2 * math.pi) - math.pi)


def _lines(pieces: Sequence[Piece], frame: Frame) -> list[_Line]:
    """Lines of one direction: every piece, from the left, joins the line whose last piece it continues."""
    lines: list[_Line] = []
    for placed in sorted((_Placed(piece, frame.extent(piece.polygon)) for piece in pieces), key=lambda one: one.box[0]):
        fitting = [line for line in lines if _continues(line, placed)]
        if fitting:
            max(fitting, key=lambda line: _overlap(_anchor(line), placed)).pieces.append(placed)
        else:
            lines.append(_Line(frame, [placed]))
    return lines


def _anchor(line: _Line) -> _Placed:
    """The last piece with letters, since a full stop says little of where the line is."""
    return next((one for one in reversed(line.pieces) if _LEFT_TO_RIGHT.search(one.piece.text)), line.pieces[-1])


def _continues(line: _Line, placed: _Placed) -> bool:
    anchor = _anchor(line)
    if _overlap(anchor, placed) < SAME_LINE:
        return False
    taller = max(anchor.height, placed.height)
    gap = placed.box[0] - max(one.box[2] for one in line.pieces)
    lettered = all(_LEFT_TO_RIGHT.search(one.piece.text) for one in (anchor, placed))
    alike = not lettered or min(anchor.height, placed.height) >= SMALLEST_OF_A_LINE * taller
    return alike and -taller <= gap <= COLUMN_GAP * taller


def _overlap(one: _Placed, other: _Placed) -> float:
    shared = min(one.box[3], other.box[3]) - max(one.box[1], other.box[1])
    return shared / max(min(one.height, other.height), 1e-6)


def _page(pieces: Sequence[Piece]) -> list[_Line]:
    """All lines in reading order; those of one direction together, as who turns the page reads them."""
    groups = [_ordered(_lines(group, frame)) for frame, group in _by_angle(pieces)]
    groups.sort(key=lambda lines: min(y for line in lines for one in line.pieces for _, y in one.piece.polygon))
    return [line for lines in groups for line in lines]


def _ordered(lines: Sequence[_Line]) -> list[_Line]:
    """Lines of one direction: what stands above in the same column comes first, then a column before the next.

    A line comes before another below it that it overlaps sideways, and before one that lies beside it unless a
    third line between the two in height spans both columns.
    """
    mirrored = sum(line.is_right_to_left for line in lines) * 2 > len(lines)
    boxes = np.array([line.extent for line in lines]).reshape(-1, 4)
    precedes = _precedence(boxes, mirrored)
    left = np.lexsort((-boxes[:, 2] if mirrored else boxes[:, 0], boxes[:, 1])).tolist()
    ordered: list[_Line] = []
    while left:
        chosen = next((index for index in left if not precedes[left, index].any()), left[0])
        ordered.append(lines[chosen])
        left.remove(chosen)
    return ordered


def _precedence(boxes: np.ndarray, mirrored: bool) -> np.ndarray:
    """Whether the line of a row is read before that of a column, bool ``(n_lines, n_lines)``, of boxes ``(n, 4)``."""
    middle = (boxes[:, 1] + boxes[:, 3]) / 2
    meet = np.minimum.outer(boxes[:, 2], boxes[:, 2]) > np.maximum.outer(boxes[:, 0], boxes[:, 0])
    above = middle[:, None] < middle
    aside = boxes[:, None, 0] > boxes[:, 0] if mirrored else boxes[:, None, 0] < boxes[:, 0]
    spanned = np.zeros_like(meet)
    for row in range(len(boxes)):
        between = (middle - middle[row]) * (middle - middle[:, None]) < 0
        spanned[row] = (between & meet[row] & meet).any(axis=1)
    return np.asarray(np.where(meet, above, aside & ~spanned))


def _letters(line: _Line) -> list[_Letter]:
    """The line's code points in logical order, with the spaces between its pieces."""
    letters: list[_Letter] = []
    before: _Placed | None = None
    for placed in _logical(line):
        if before is not None and _is_parted(before, placed):
            letters.append(_Letter(" "))
        letters += _letters_of(placed)
        before = placed
    return letters


def _logical(line: _Line) -> list[_Placed]:
    """Pieces from first to last read: runs against the line's own direction are turned round."""
    base = line.is_right_to_left
    pieces = line.pieces[::-1] if base else line.pieces
    runs = [(against, list(run)) for against, run in groupby(pieces, lambda one: _is_against(one.piece.text, base))]
    return [placed for against, run in runs for placed in (run[::-1] if against else run)]


def _is_against(text: str, base: bool) -> bool:
    """Whether a piece is written against the line's direction; signs without letters go with the line."""
    right_to_left = _RIGHT_TO_LEFT.search(text) is not None
    return (not right_to_left and _LEFT_TO_RIGHT.search(text) is not None) if base else right_to_left


def _is_parted(one: _Placed, other: _Placed) -> bool:
    if _SPACELESS.match(one.piece.text[-1]) and _SPACELESS.match(other.piece.text[0]):
        return False
    if all(len(_GRAPHEME.findall(placed.piece.text)) == 1 for placed in (one, other)):
        gap = max(other.box[0] - one.box[2], one.box[0] - other.box[2])
        return gap > LETTER_GAP * max(one.height, other.height)
    return True


def _letters_of(placed: _Placed) -> list[_Letter]:
    text = placed.piece.text
    widths = [_width(character) for character in text]
    total = sum(widths) or 1.0
    letters, place = [], 0.0
    mirrored = _is_against(text, base=False)
    for character, width in zip(text, widths, strict=True):
        start, end = place / total, (place + width) / total
        letters.append(_Letter(character, placed, 1 - end if mirrored else start, 1 - start if mirrored else end))
        place += width
    return letters


def _width(character: str) -> float:
    """Roughly, in widths of a usual letter."""
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.7
    if character in _NARROW:
        return 0.55
    return 1.4 if character in _WIDE else 1.0


def _word(
    line: str,
    span: tuple[int, int],
    letters: Sequence[_Letter],
    frame: Frame,
    offset: int,
    size: tuple[int, int],
    min_confidence: float,
) -> Word:
    own = [letter for letter in letters[span[0] : span[1]] if letter.placed is not None]
    polygon = clipped(_around(own, frame), size)
    text = line[span[0] : span[1]]
    confidence = sum(letter.placed.piece.confidence for letter in own if letter.placed) / len(own)
    return Word(
        text=text,
        start=offset + span[0],
        end=offset + span[1],
        box=bounding_box(polygon),
        polygon=polygon,
        confidence=min(confidence, 1.0),
        flags=flags_of(text, confidence, min_confidence),
    )


def _around(letters: Sequence[_Letter], frame: Frame) -> Polygon:
    """The part of their piece that letters cover, or the rectangle around the parts of several pieces."""
    parts: dict[int, tuple[_Placed, float, float]] = {}
    for letter in letters:
        if letter.placed is not None:
            placed, start, end = parts.get(id(letter.placed), (letter.placed, 1.0, 0.0))
            parts[id(letter.placed)] = (placed, min(start, letter.start), max(end, letter.end))
    polygons = [_share(placed, start, end) for placed, start, end in parts.values()]
    if len(polygons) == 1:
        return polygons[0]
    return frame.rectangle(frame.extent(corner for polygon in polygons for corner in polygon))


def _share(placed: _Placed, start: float, end: float) -> Polygon:
    """The part of a piece's polygon between two shares of its length; of a column of signs, of its height."""
    a, b, c, d = placed.piece.polygon
    if _is_column(placed):
        return _along(a, d, start), _along(b, c, start), _along(b, c, end), _along(a, d, end)
    return _along(a, b, start), _along(a, b, end), _along(d, c, end), _along(d, c, start)


def _is_column(placed: _Placed) -> bool:
    """Whether the signs of one piece stand below each other: it is much higher than wide and of several Han signs."""
    several = len(_SPACELESS.findall(placed.piece.text)) > 1
    return several and placed.height > 1.5 * (placed.box[2] - placed.box[0])


def _along(start: tuple[float, float], end: tuple[float, float], share: float) -> tuple[float, float]:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
