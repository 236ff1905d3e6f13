"""A file without permission is an `ArtifactError` that names it, whichever question opens it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.programs import Executed

_POWERS = "-dac_override,-dac_read_search"
"""What lets root read and write everything."""
ASK = """
    import sys
    from pathlib import Path
    import torch
    import etviz
    folder = Path(sys.argv[1])
    questions = {
        "locked.etdp": lambda path: etviz.load(path),
        "locked.zip": lambda path: etviz.load(path),
        "locked": lambda path: etviz.load(path),
        "locked/etdump.etdp": lambda path: etviz.load(path),
        "locked/model.pte": lambda path: etviz.study(path.parent, [(torch.ones(1),)]),
        "fixed/report.html": lambda path: etviz.load(folder / "run").to_html(path),
        "fixed/probes": lambda path: etviz.probe(folder / "run", workdir=path),
        "fixed/sweep": lambda path: etviz.sweep(torch.nn.ReLU(), {"a": {}}, [(torch.ones(2),)], folder=path),
    }
    for name, ask in questions.items():
        try:
            ask(folder / name)
            print(name, "was fine")
        except Exception as error:
            print(name, type(error).__name__, error)
"""


@pytest.fixture
def ordinary() -> list[str]:
    """Begins a command whose process has no more rights than the files give their owner."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root reads everything, and there is no setpriv")
    return ["setpriv", f"--bounding-set={_POWERS}", f"--inh-caps={_POWERS}"]


@pytest.fixture
def folder(executed: Callable[[str], Executed], tmp_path: Path) -> Iterator[Path]:
    made = executed("plain_cnn").folder
    for name in ("run", "locked"):
        shutil.copytree(made, tmp_path / name)
    shutil.copy(made / "etdump.etdp", tmp_path / "locked.etdp")
    shutil.make_archive(str(tmp_path / "locked"), "zip", made)
    (tmp_path / "fixed").mkdir()
    for path in tmp_path.glob("locked*"):
        path.chmod(0)
    (tmp_path / "fixed").chmod(0o500)
    yield tmp_path
    for name in ("fixed", "locked"):
        (tmp_path / name).chmod(0o700)


def test_a_missing_permission_names_the_file(ordinary: list[str], folder: Path) -> None:
    command = [*ordinary, sys.executable, "-c", textwrap.dedent(ASK), str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert len(said) == ASK.count("lambda")
    for line in said:
        name, kind, text = line.split(maxsplit=2)
        assert kind == "ArtifactError", line
        assert text.startswith(str(folder / name)), line
        assert "permission" in text.lower() or "nothing can be written into the folder" in text, line
