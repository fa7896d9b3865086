"""Which jobs this process is acting on, so that a claim which nobody acts on any more is found."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Acting:
    """The jobs that threads of this process are at."""

    def __init__(self) -> None:
        self._jobs: Counter[int] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def on(self, job_id: int) -> Iterator[None]:
        """Inside the block, which begins before the claim, a thread acts on the job."""
        with self._lock:
            self._jobs[job_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._jobs[job_id] -= 1
                if not self._jobs[job_id]:
                    del self._jobs[job_id]

    def __contains__(self, job_id: object) -> bool:
        with self._lock:
            return job_id in self._jobs
