"""A recipe that names an interpreter is lowered and run there, by what is installed there, with nothing of ours."""

from __future__ import annotations

import importlib.metadata
import re
import site
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import etviz
from etviz.errors import UsageError
from etviz.evidence.subject import digest

RECIPES = """
from torch import nn

def model():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

def other():
    return nn.Linear(2, 2)
"""
XNNPACK = "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has our packages, but for what its own `numbers` of torch say."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    places = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (places / "shared.pth").write_text("\n".join(site.getsitepackages()))
    about = places / "executorch-0.0.7.dist-info"  # found before the one that is installed, so versions come from here
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: executorch\nVersion: 0.0.7\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose functions make models."""
    path = tmp_path_factory.mktemp("recipes") / "recipes.py"
    path.write_text(RECIPES)
    return path


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """Two layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()


@pytest.fixture(scope="module")
def inputs() -> list[tuple[torch.Tensor]]:
    """Three inputs."""
    return [(torch.randn(2, 8, generator=torch.Generator().manual_seed(at)),) for at in range(3)]


@pytest.fixture(scope="module")
def local(model: nn.Module, inputs: list[tuple[torch.Tensor]]) -> etviz.Sweep:
    """The model lowered here."""
    return etviz.sweep(model, {"here": {"partitioner": XNNPACK}}, inputs, latency=False)


@pytest.fixture(scope="module")
def swept(
    python: Path,
    recipes: Path,
    model: nn.Module,
    inputs: list[tuple[torch.Tensor]],
    tmp_path_factory: pytest.TempPathFactory,
) -> etviz.Sweep:
    """The model lowered there, while variables of ours would lead the other environment astray."""
    astray = tmp_path_factory.mktemp("astray")
    (astray / "executorch").mkdir()
    for name in ("sitecustomize.py", "torch.py", "executorch/__init__.py"):
        (astray / name).write_text("raise SystemExit('a module of the wrong environment')\n")
    there = {"python": python, "partitioner": XNNPACK}
    chosen = {
        "there": there,
        "made there": there | {"model": f"{recipes}:model"},
        "other weights": there | {"model": f"{recipes}:other"},
        "an object": {"python": python, "partitioner": [object()]},
        "no name": {"python": python, "partitioner": "no.such.module:thing"},
        "no interpreter": {"python": astray / "python"},
        "no Python": {"python": "/bin/true"},
        "no python": {"model": f"{recipes}:model"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(astray))
        patch.setenv("PYTHONHOME", str(astray))
        return etviz.sweep(model, chosen, inputs, latency=False)


def test_the_table_has_the_versions_that_were_used(local: etviz.Sweep, swept: etviz.Sweep) -> None:
    table = swept.table
    own: Any = local.table.loc["here"]
    assert own["executorch"] == importlib.metadata.version("executorch")
    assert own["torch"] == torch.__version__
    assert list(table.loc[["there", "made there", "no name"], "executorch"]) == ["0.0.7"] * 3
    assert table.loc["there", "torch"] == torch.__version__
    assert table.loc["no interpreter", "executorch"] == ""


def test_the_same_executorch_gives_the_same_program_and_numbers_there(local: etviz.Sweep, swept: etviz.Sweep) -> None:
    table = swept.table
    assert list(table.index[table["status"] == "measured"]) == ["there", "made there"], list(table["reason"])
    here, there, made = local.variants["here"], swept.variants["there"], swept.variants["made there"]
    assert digest(here.subject.pte) == digest(there.subject.pte) == digest(made.subject.pte)
    for own, other in zip(here.outputs, there.outputs, strict=True):
        assert torch.equal(own[0], other[0])
    for name in ("rmse", "max_abs", "rel_l2", "sqnr_db", "worst_rmse", "size_bytes"):
        assert dict(table[name])["there"] == dict(local.table[name])["here"]


def test_its_artifacts_are_read_here_like_any_others(local: etviz.Sweep, swept: etviz.Sweep) -> None:
    there, here = swept.open("there", 1), local.open("here", 1)
    assert "recipe there, input 1" in there.analysis.title
    assert set(there.gaps["pairing"]) == {"derived"}  # an ETRecord came back, a record of ours can't
    for name in ("instruction", "rmse", "introduced_rmse", "op"):
        assert list(there.gaps[name]) == list(here.gaps[name])
    assert there.outputs["matches"].all()
    with pytest.raises(UsageError, match="no recipe 'no name' was measured; there are there, made there"):
        swept.open("no name")
    with pytest.raises(UsageError, match="there is no input 3; there are 3"):
        swept.open("there", 3)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("other weights", "executorch 0.0.7 with torch .* can't export the model: RuntimeError: .*state_dict"),
        ("an object", "name a callable that makes it, as .* found a list"),
        ("no name", "can't lower the model: ModuleNotFoundError: No module named 'no'"),
        ("no interpreter", "python must be the interpreter of another environment"),
        ("no Python", "The child process ended without an answer"),
        ("no python", "name its interpreter as well, python="),
    ],
)
def test_what_can_not_be_had_is_a_row_with_its_reason(swept: etviz.Sweep, recipe: str, reason: str) -> None:
    row: Any = swept.table.loc[recipe]
    assert row["status"] == "failed"
    assert re.search(reason, row["reason"]), row["reason"]


def test_a_program_that_the_other_torch_can_not_read_says_what_to_do(python: Path, tmp_path: Path) -> None:
    from etviz.pipeline import environment
    from etviz.pipeline.worker import worker_in

    (tmp_path / "model.pt2").write_bytes(b"a format of the future")
    torch.save({"inputs": [], "calibration": []}, tmp_path / "values.pt")
    request = {"work": "lower", "folder": str(tmp_path), "program": str(tmp_path / "model.pt2"), "model": ""}
    request |= {"values": str(tmp_path / "values.pt"), "strict": True, "partitioner": "", "quantizer": ""}
    answer = worker_in(str(python)).run(request)
    assert answer["step"] == "read"
    text = environment.failed(answer["step"], answer["problem"], environment.versions_in(str(python)))
    assert f"can't read the program that torch {torch.__version__} exported here" in text
    assert 'model="file.py:name"' in text
