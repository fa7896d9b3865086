"""Which core a worker keeps to."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Where Linux says on which core a process ran last: the 39th field, counted after the name in brackets (proc(5)).
_STAT = Path("/proc/self/stat")
_PROCESSOR = 39 - 3


def keep_to_one_core(others: Iterable[int]) -> None:
    """Let this process's threads run on one core, and on one that no worker among the processes `others` keeps to.

    They take turns by Python's lock in any case; when they sit on several cores each turn wakes up another core, which
    costs a third of all processor time here. Where the system does not offer it, nothing is done.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {choose_core(cores, _kept_by(others), _present_core())})


def choose_core(cores: Sequence[int], kept: Iterable[int], present: int | None) -> int:
    """The core that the fewest of the others keep to; among these the present one, where the system put this process
    since it was idle."""
    taken = Counter(kept)
    return min(cores, key=lambda core: (taken[core], core != present, core))


def _kept_by(processes: Iterable[int]) -> list[int]:
    """The core of each process that keeps to a single one."""
    kept: list[int] = []
    for process in processes:
        # It may have ended by now.
        with contextlib.suppress(OSError):
            cores = os.sched_getaffinity(process)
            if len(cores) == 1:
                kept.extend(cores)
    return kept


def _present_core() -> int | None:
    try:
        return int(_STAT.read_text().rpartition(")")[2].split()[_PROCESSOR])
    except (OSError, ValueError, IndexError):
        return None
