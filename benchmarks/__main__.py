"""Command line: ``python -m benchmarks`` prints one table of ratios against the upstream Inspector."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.artifacts import Program, missing, prepare, programs, tiny
from benchmarks.measure import growth, plan, run
from benchmarks.table import as_json, rows, show

CACHE = Path("build/bench")


def main() -> int:
    """Measure and print; returns the exit status."""
    options = _parse()
    known = programs(quick=options.quick, deep=options.growth)
    chosen = _choose([program for program in known if program.layers or not options.growth], options.only)
    for program in list(chosen):
        if reason := missing(program):
            print(f"{program.title} is left out: {reason}", file=sys.stderr)
            chosen.remove(program)
    if not chosen:
        return 2
    artifacts = prepare([tiny(), *chosen], options.cache, quick=options.quick)
    plans = growth(chosen) if options.growth else plan(chosen)
    repeat = options.repeat or (2 if options.quick else 5)
    run(plans, artifacts, repeat)
    table = rows(plans)
    show(table, repeat)
    if options.json:
        options.json.write_text(json.dumps(as_json(plans, table, repeat), indent=1), encoding="utf-8")
    return 0


def _choose(known: list[Program], names: list[str] | None) -> list[Program]:
    if not names:
        return known
    chosen = [program for program in known if program.name in names]
    if unknown := set(names) - {program.name for program in known}:
        sys.exit(f"no program is named {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in known)}")
    return chosen


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small programs and two repetitions")
    parser.add_argument("--only", action="append", metavar="NAME", help="measure this program; may be repeated")
    parser.add_argument(
        "--growth", action="store_true", help="only how etviz's time and memory grow with the layers of a program"
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of each measurement (5; 2 with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to a file")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="DIR", help="where artifacts are kept (%(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
