"""One record of a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

_END = "\r\n"


def csv_record(cells: Sequence[str], delimiter: str = ",") -> str:
    """The cells as one line that ends with `\\n`, in quotes where they must be."""
    buffer = io.StringIO()
    # With both of them in the line's end the writer puts cells with either into quotes, on every version of Python.
    csv.writer(buffer, delimiter=delimiter, lineterminator=_END).writerow(cells)
    return buffer.getvalue().removesuffix(_END) + "\n"
