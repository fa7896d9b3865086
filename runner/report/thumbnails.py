"""Small pictures that stand in the report itself."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

#: Longer side, in pixels, twice of what is shown, for dense screens.
SIDE = 320
#: Pixels of a picture that is made small; a larger one is shown as it is, by the browser.
MOST_PIXELS = 80_000_000
AT_ONCE = 4


def thumbnails(sources: Iterable[Callable[[], bytes | None]]) -> Iterator[str | None]:
    """A data URI for each picture, in order; `None` for what is none that Pillow reads."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(_thumbnail_of, sources)


def _thumbnail_of(source: Callable[[], bytes | None]) -> str | None:
    content = source()
    return thumbnail(content) if content else None


def thumbnail(content: bytes) -> str | None:
    """The picture made small, as a data URI; `None` for what is no picture that Pillow reads."""
    try:
        with warnings.catch_warnings():
            # One that is too large is passed over below.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                if image.width * image.height > MOST_PIXELS:
                    return None
                image.draft("RGB", (SIDE, SIDE))
                image.thumbnail((SIDE, SIDE))
                small = io.BytesIO()
                image.convert("RGBA" if _has_transparency(image) else "RGB").save(small, "WEBP", quality=70)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return f"data:image/webp;base64,{base64.b64encode(small.getvalue()).decode('ascii')}"


def _has_transparency(image: Image.Image) -> bool:
    return image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info
