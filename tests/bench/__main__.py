"""`python -m tests.bench`: measures, prints `name value unit` lines, and the marks last.

Everything that is compared is interleaved within one run: figures of different runs or machines are not comparable.
Invariant: exits 0 whenever all that was asked for could be measured; whether a mark is met is said, not enforced.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.bench import report
from tests.helpers.keeper import keep


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure speed against baselines.")
    parser.add_argument("--only", metavar="GLOB", default="*", help="numbers whose names match, for example 'server.*'")
    parser.add_argument("--quick", action="store_true", help="few rounds: for a look, not for a record")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args(arguments)
    # Late: --help and --list of a runner should not wait for torch more than they must.
    from tests.bench import (
        agent,
        alerts,
        backtest,
        comparing,
        footprint,
        frameworks,
        ingest,
        large,
        layers,
        ranks,
        reading,
        reducing,
        viewing,
    )

    modules = (
        agent, large, frameworks, footprint, reducing, ingest, reading, layers, comparing, ranks, alerts, backtest,
        viewing,
    )  # fmt: skip
    known = [bench for module in modules for bench in module.BENCHES]
    benches = [bench for bench in known if bench.matches(options.only)]
    if not benches:
        parser.error(f"no number matches {options.only!r}; --list prints their names")
    if options.list:
        print("\n".join(name for bench in benches for name in bench.names))
        return 0
    print(report.machine_line(), flush=True)
    measured: list[report.Measurement] = []
    for bench in benches:
        for measurement in bench.run(options.quick):
            measured.append(measurement)
            print(measurement.line(), flush=True)
    print("\n".join(report.summary(measured)))
    return 0


if __name__ == "__main__":
    keep()
    sys.exit(main())
