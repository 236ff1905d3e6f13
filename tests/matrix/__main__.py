"""``python -m tests.matrix``: try pairs of versions in separate environments and write docs/compatibility.md.

``--newest`` tries the newest torch and executorch instead, and writes nothing: a canary. ``--pair 2.12.1:1.4.1`` tries
one pair; an empty executorch (``2.14.1:``) reads artifacts only. Environments live in ``.matrix`` while they are tried.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = ROOT / ".matrix"
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
PAIRS = ("2.13.0:1.5.1", "2.14.1:1.5.1", "2.13.0:1.4.1", "2.12.1:1.3.1", "2.10.0:1.1.0", "2.9.1:1.0.1")
READERS = ("2.14.1:", "2.9.1:")


@dataclass
class Tried:
    """What one environment gave; `problem` if it could not even be made."""

    pair: str
    versions: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def row(self) -> str:
        """Its line of the table."""
        torch, _, executorch = self.pair.partition(":")
        python = self.versions.get("python", "")
        reasons: dict[str, list[str]] = {}
        for name, state in self.checks.items():
            reasons.setdefault(state, []).append(name)
        works = ", ".join(reasons.pop("ok", []))
        failed = "; ".join(f"{', '.join(names)}: {state}" for state, names in reasons.items()).replace("|", "\\|")
        failed = failed.replace(f"{HERE}/", "")
        state = self.problem or failed or "–"
        what = works or "–"
        return f"| {torch} | {executorch or '–'} | {python} | {what} | {state} |"


def command(*words: str | Path) -> str:
    """Run a command; return its output, raise with its last lines.

    What its environment installed is found as in a shell that activated it: executorch 1.1 starts ``flatc`` by name.
    """
    path = f"{Path(words[0]).parent}{os.pathsep}{os.environ['PATH']}"
    given = {"capture_output": True, "text": True, "check": False, "cwd": HERE, "env": {**os.environ, "PATH": path}}
    done = subprocess.run([str(word) for word in words], **given)
    if done.returncode:
        raise RuntimeError(" ".join((done.stderr or done.stdout).strip().splitlines()[-3:])[-400:])
    return done.stdout


def try_pair(pair: str, wheel: Path, artifacts: Path, interpreter: str) -> Tried:
    """Make an environment with the pair, install the wheel, and run the program of the matrix in it."""
    torch, _, executorch = pair.partition(":")
    place = HERE / f"torch-{torch or 'newest'}-executorch-{executorch or 'none'}"
    python = place / "bin" / "python"
    try:
        command(interpreter, "-m", "venv", place)
        pins = [f"torch=={torch}" if torch != "newest" else "torch"]
        if executorch:
            pins.append(f"executorch=={executorch}" if executorch != "newest" else "executorch")
        command(python, "-m", "pip", "install", "-q", *pins)
        before = command(python, "-m", "pip", "list", "--format", "freeze", "--exclude", "etviz")
        command(python, "-m", "pip", "install", "-q", wheel)
        after = command(python, "-m", "pip", "list", "--format", "freeze", "--exclude", "etviz")
        if missing := set(before.split()) - set(after.split()):
            return Tried(pair, problem=f"installing etviz changed {', '.join(sorted(missing))}")
        answer = json.loads(command(python, Path(__file__).with_name("program.py"), artifacts).splitlines()[-1])
        return Tried(pair, answer["versions"], answer["checks"])
    except RuntimeError as error:
        return Tried(pair, problem=str(error))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Try all pairs; the exit status is 1 if the pair that etviz is developed with fails, or a canary does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--newest", action="store_true")
    parser.add_argument("--pair", action="append")
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    artifacts = HERE / "artifacts"
    command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", HERE, ROOT)
    wheel = next(HERE.glob("*.whl"))
    code = f"from pathlib import Path; from tests.matrix.program import run; run(Path({str(artifacts)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
    pairs = ["newest:newest"] if args.newest else args.pair or [*PAIRS, *READERS]
    done = []
    for pair in pairs:
        done.append(try_pair(pair, wheel, artifacts / "xnnpack", args.python))
        sys.stdout.write(done[-1].row + "\n")
        sys.stdout.flush()
    if not args.newest and not args.pair:
        head = "| torch | executorch | Python | works | does not |\n| --- | --- | --- | --- | --- |\n"
        text = PAGE.read_text(encoding="utf-8")
        start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        rows = "\n".join(item.row for item in done)
        PAGE.write_text(f"{text[:start]}\n{head}{rows}\n{text[end:]}", encoding="utf-8")
    failed = [item for item in done if item.problem or set(item.checks.values()) != {"ok"}]
    return int(bool(failed) if args.newest or args.pair else any(item.pair == PAIRS[0] for item in failed))


if __name__ == "__main__":
    sys.exit(main())
