"""What a user would write instead: a short asyncio script over the official SDK. No database, no resume.

Usage: python -m benchmarks.peer ROWS IN_FLIGHT FOLDER, with COMFY_ROUTER_BASE_URL and COMFY_API_KEY set.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
from comfy_sdk import AsyncComfy

MODEL = "bfl/flux-2-pro"


async def generate(comfy: AsyncComfy, media: httpx.AsyncClient, row: int, folder: Path) -> None:
    """One row: submit, wait, collect, download."""
    handle = await comfy.models.submit(MODEL, arguments={"prompt": f"benchmark row {row}"})
    result = await handle.get()
    answer = await media.get(result["result"]["sample"])
    answer.raise_for_status()
    (folder / f"{row}.png").write_bytes(answer.content)


async def main(rows: int, in_flight: int, folder: Path) -> None:
    """All rows, so many at a time."""
    places = asyncio.Semaphore(in_flight)
    async with AsyncComfy() as comfy, httpx.AsyncClient() as media:

        async def one(row: int) -> None:
            async with places:
                await generate(comfy, media, row, folder)

        await asyncio.gather(*(one(row) for row in range(1, rows + 1)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
