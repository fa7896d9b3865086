"""Which ids a manifest has used already, and where, in a few bytes a row."""

from __future__ import annotations

from array import array


class IdIndex:
    """Finds the line on which an id stood first.

    Only a 64-bit hash of each id and its line are kept, in a hash table that is at most two thirds full: 18 to
    36 bytes an id (about 50 MB for two million), half as much again while the table grows. Two ids that are not
    the same share a hash once in about ten million files of two million rows.
    """

    def __init__(self) -> None:
        self._size = 0
        self._set_capacity(1 << 10)

    def _set_capacity(self, capacity: int) -> None:
        self._mask = capacity - 1
        self._hashes = array("Q", bytes(8 * capacity))
        self._lines = array("I", bytes(4 * capacity))
        self._room = capacity * 2 // 3

    def first_line(self, custom_id: str, line: int) -> int | None:
        """The line that used the id before, or `None` when this is the first; then it is remembered."""
        # Zero marks an empty place.
        hashed = hash(custom_id) & 0xFFFF_FFFF_FFFF_FFFF or 1
        place = self._place(hashed)
        if self._hashes[place]:
            return self._lines[place]
        if self._size >= self._room:
            self._grow()
            place = self._place(hashed)
        self._hashes[place] = hashed
        self._lines[place] = line
        self._size += 1
        return None

    def _place(self, hashed: int) -> int:
        """Where the hash stands, or the empty place where it belongs."""
        hashes, mask = self._hashes, self._mask
        place = hashed & mask
        while hashes[place] not in (0, hashed):
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        hashes, lines = self._hashes, self._lines
        self._set_capacity((self._mask + 1) * 2)
        for hashed, line in zip(hashes, lines, strict=True):
            if hashed:
                place = self._place(hashed)
                self._hashes[place] = hashed
                self._lines[place] = line
