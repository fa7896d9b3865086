"""What came of a run, held against what is promised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from runner.store.engine import Database
from tests.acceptance.harness import Bench, Ended, Router
from tests.chaos.chaos import Told
from tests.chaos.faults import met_faults
from tests.crash.ends import End, look

#: A submit, a read of the result, a download.
CALLS_A_ROW = 3
#: How soon the work goes on after all workers have died, in seconds.
RECOVERY = 10.0


@dataclass(frozen=True)
class Report:
    """The counts of a run."""

    rows: int
    told: Told
    end: End
    ledger: dict[str, Any]
    met: dict[str, int]
    left_over: int

    def broken(self) -> list[str]:
        """Every promise that did not hold, in words."""
        found = list(self.end.faults)
        found += [f"{self.lost} rows did not succeed"] * bool(self.lost)
        found += [f"{self.billed_twice} keys were billed twice"] * bool(self.billed_twice)
        found += [f"{self.unasked} reads came before their time"] * (self.unasked > 0)
        found += [f"the work went on only after {self.told.recovery:.1f} s"] * (self.told.recovery > RECOVERY)
        return found

    @property
    def lost(self) -> int:
        """Rows without their picture."""
        return self.rows - sum(row.state == "succeeded" and bool(row.assets) for row in self.end.rows.values())

    @property
    def billed_twice(self) -> int:
        """Keys with more than one run or charge."""
        return sum(max(account["runs"], account["billed"]) > 1 for account in self.ledger["by_key"].values())

    @property
    def unasked(self) -> int:
        """Early polls that somebody living should have known of."""
        return max(0, self.end.early_polls - self.told.lost_reads)

    @property
    def calls(self) -> int:
        """Calls at the Router and its media host."""
        return sum(self.end.calls[kind] for kind in ("submit", "result", "status", "cancel", "media"))

    def table(self) -> Table:
        """For people."""
        table = Table(title="Chaos")
        for name, side in (("", "left"), ("count", "right"), ("promised", "right")):
            table.add_column(name, justify="right" if side == "right" else "left")
        for what, count in self.told.done.items():
            table.add_row(what, f"{count:,}", "")
        table.add_section()
        for what, count in self.met.items():
            table.add_row(f"{what}", f"{count:,}", "")
        met = sum(self.met.values())
        table.add_row("Router faults in all", f"{met:,}", f"1 call in {self.calls / max(met, 1):.1f}")
        table.add_section()
        for row in self._promises():
            table.add_row(*row)
        table.add_section()
        for row in self._costs():
            table.add_row(*row)
        return table

    def _promises(self) -> list[tuple[str, str, str]]:
        early = f"{self.end.early_polls}, {self.told.lost_reads}"
        return [
            ("rows", f"{self.rows:,}", ""),
            ("rows succeeded", f"{self.rows - self.lost:,}", f"{self.rows:,}"),
            ("rows lost", f"{self.lost:,}", "0"),
            ("keys billed twice", f"{self.billed_twice:,}", "0"),
            ("charges", f"{self.ledger['billed']:,}", f"{self.rows:,}"),
            ("files left over", f"{self.left_over:,}", "0"),
            ("early polls that could know better", f"{self.unasked:,}", "0"),
            ("early polls, answers that died", early, ""),
            ("seconds without any worker's call", f"{self.told.recovery:.1f}", f"{RECOVERY:.0f}"),
        ]

    def _costs(self) -> list[tuple[str, str, str]]:
        extra = self.calls - CALLS_A_ROW * self.rows
        return [
            *((f"calls: {kind}", f"{count:,}", "") for kind, count in self.end.calls.items() if kind != "catalog"),
            (f"calls beyond {CALLS_A_ROW} a row", f"{extra:+,}", f"{extra / self.rows:+.2f} a row"),
            ("seconds", f"{self.told.seconds:.1f}", f"{self.rows / max(self.told.seconds, 0.1):.1f} rows a second"),
        ]


def report(bench: Bench, database: Database, router: Router, rows: int, told: Told) -> Report:
    """Look at everything that is left."""
    ledger = router.ledger()
    end = look(database, router, Ended(0, "", ""))
    lines = bench.export()
    known = {asset["path"] for line in lines for asset in line["assets"]} | {line["result_path"] for line in lines}
    folder = Path(bench.status()["output_dir"])
    left_over = sum(str(path) not in known for path in folder.rglob("*") if not path.is_dir())
    return Report(rows, told, end, ledger, met_faults(database), left_over)
