"""Every snippet of README and docs is executed as it is written, in the order of its page.

A page starts from what it takes as known: a model, its inputs and batches, and the files of a run, as `etviz.debug`
leaves them. Only what needs something that no test machine has is left out, with the reason.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from typer.testing import CliRunner

import etviz
from etviz.cli.app import app
from etviz.pipeline import interpreters
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from tests.calls.decoders import WORDS, Decoder, driver
from tests.language.programs import Recipe, calls_of, model_of
from tests.parity.test_port_card import Original
from tests.programs import Executed, build
from tests.shifted import load_shifted
from tests.vendors.models import Cnn

Make = Callable[[str], Executed]
ROOT = Path(__file__).parents[1]
PAGES = (
    *("README", "command-line", "devices", "diagnosis", "evidence", "from-artifacts", "getting-started"),
    *("how-pairing-works", "quantization", "reading-the-table", "sharing", "tensor", "view", "why", "zoom"),
    *("calls", "decode", "parity", "backends", "emulated", "language-models"),
)
TOSA = importlib.util.find_spec("tosa_reference_model") is not None
OTHERS = {
    ("backends", "cpp"): "tests/backend/loops.cpp",
    ("calls", "cpp"): "examples/cpp_runner, by tests/runner",
    ("calls", "text"): "what is printed",
    ("command-line", "toml"): "tests/gate/test_gate.py",
    ("devices", "java"): "an Android app",
    ("devices", "swift"): "an iOS app",
    ("emulated", "text"): "what is printed",
    ("evidence", "sql"): "DuckDB; the tables are those of tests/evidence/test_store.py",
    ("parity", "text"): "what is printed",
}
"""Languages that are not executed here, and where they are or why not."""
LEFT_OUT = {
    'etviz run model.pte --runner "ssh': "a board",
    "etviz run model.pte --runner examples/": "the C++ runner: tests/runner",
    "etviz run model.pte --adb": "a phone",
    "runner --model": "a runner of the user's: `run_probes` does it",
    "make runner": "tests/runner builds it",
    "examples/cpp_runner": "the C++ runner: tests/runner",
    "pip install": "the network",
    "model-explorer": "a server of its own",
    "jupyter nbconvert": "a notebook: tests/browser/test_embed.py",
    "etviz mcp": "a server, which does not end: tests/cli/test_agent.py",
    "llama-perplexity": "llama.cpp",
    "etviz decode build/model.pte --reference": "its file: tests/decoding/test_base.py",
    'run = etviz.decode("whisper.pte"': "a model of speech: tests/decoding/test_encoder.py",
    "from distributed import": "a cluster of machines: tests/evidence/test_executors.py has one of processes",
    'xnnpack = {"partitioner": "executorch': "another environment: tests/evidence/test_versions.py",
    'study = etviz.study("model.pte", prompts': "a language model: tests/decoding/test_prompt_study.py",
    "inside = inspection.zoom(row, preprocessing": "a backend that logs: tests/backend/test_inside.py",
    "from executorch.examples.models.llama.export_llama_lib": "a checkpoint: tests/language/test_exporters.py",
    'calls = [("encode", (sound,))': "a model of speech: tests/language/test_methods.py",
    'inspection = etviz.debug(model, inputs, libraries=["my_operators"])': "tests/language/test_libraries.py",
    'inspection = etviz.load("uart.log"': "a board: tests/vendors has the same from a run of the emulator",
}
"""How a snippet, or a command, begins that is not executed here."""
SHELL = ("console", "sh", "bash")
PRELUDE = """
import numpy as np, torch, etviz
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.devtools import Inspector
from executorch.devtools.inspector.numerical_comparator import NumericalComparatorBase
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

class MyComparator(NumericalComparatorBase):
    def element_compare(self, a, b):
        return float(torch.as_tensor(a).sub(torch.as_tensor(b)).abs().max())

quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
my_gelu = torch.nn.functional.gelu
"""


def program_of(page: str) -> str:
    """The program that a page is about: a smaller one where the page lowers it several times."""
    return "residual_cnn" if page in ("evidence", "quantization") else "encoder"


@pytest.fixture
def place(
    executed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """The working directory of a user with the files of a run in it, and in `build/`."""
    program = executed(program_of(request.getfixturevalue("page")))
    for name in (".", "build", "folder", "fp32", "int8", "build/phone", "build/watch", "build/now"):
        shutil.copytree(program.folder, tmp_path / name, dirs_exist_ok=True)
    program.inputs[0].numpy().tofile(tmp_path / "x.bin")
    monkeypatch.chdir(tmp_path)
    embed = etviz.options.embed
    yield tmp_path
    etviz.options.embed = embed
    for name in ("flips", "cubic"):
        etviz.metrics.pop(name, None)


def names(page: str, executed: Make, place: Path) -> dict[str, Any]:
    """What the pages take as known."""
    known: dict[str, Any] = {}
    exec(PRELUDE, known)
    if page in OWN:
        return known | OWN[page](place)
    program = executed(program_of(page))
    model, inputs = build(program.recipe)
    batches = [(torch.randn_like(inputs[0]),) for _ in range(140 if page == "evidence" else 3)]
    exported = torch.export.export(model, inputs)
    known |= {"model": model, "example_inputs": inputs, "inputs": inputs, "batches": batches[:3], "dataset": batches}
    known |= {"exported": exported, "float_exported_program": exported, "float_model": model, "right_model": model}
    known |= {"inputs_1": inputs, "inputs_2": batches[0], "labels": torch.tensor([1]), "output": model(*inputs)}
    known["inspection"] = etviz.load("build/")
    if page == "README":
        shutil.copy("debug_buffer.bin", "debug_output.bin")
        command("$ etviz check build/ --write-baseline last.json")
    elif page == "why":
        (place / "shifted").mkdir()
        known["inspection"] = load_shifted(program, place / "shifted", 1, 0.5, inputs=inputs)
    elif page == "command-line":
        known |= {"before": etviz.load("fp32"), "after": etviz.load("int8")}
    elif page == "from-artifacts":
        files = {"etdump_path": "etdump.etdp", "debug_buffer_path": "debug_buffer.bin", "etrecord": "etrecord.bin"}
        known["inspector"] = known["Inspector"](**files)
    elif page == "quantization":
        known |= quantized(known)
    elif page == "evidence":
        config = known["get_symmetric_quantization_config"]
        known["quantizer"] = lambda **options: known["XNNPACKQuantizer"]().set_global(config(**options))
        parts = {"partitioner": [known["XnnpackPartitioner"]()], "calibration": batches[:3]}
        own = known["quantizer"](is_per_channel=True)
        known["debugged"] = etviz.debug(model, inputs, quantizer=own, **parts)
    return known


class App:
    """Runs a decoder token by token."""

    def chat(self, text: str) -> list[Any]:
        method = Runtime.get().load_program("model.pte").load_method("forward")
        assert method is not None
        return [method.execute(list(driver([ord(letter) % WORDS], at))) for at, letter in enumerate(text)]


def an_app(place: Path) -> dict[str, Any]:
    lower(Decoder(), driver([1], 0), place, strict=False)
    return {"app": App()}


def a_decoder(place: Path) -> dict[str, Any]:
    """A program with another weight than its ETRecord, and a tokenizer of words."""
    right, wrong = Decoder(room=80), Decoder(room=80)
    wrong.head.weight.mul_(1.5)
    lower(right, driver([1], 0), place / "build", strict=False)
    lower(wrong, driver([1], 0), place / "wrong", strict=False)
    shutil.copy("wrong/model.pte", "build/model.pte")
    Path("build/model.etviz").unlink()
    words = ("[UNK]", "Once", "upon", "a", "time", *(f"w{at}" for at in range(5, WORDS)))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    Path("prompts.txt").write_text("Once upon a time\n")
    return {"program": "build/model.pte", "prompts": [[1, 2, 3]]}


def a_port(place: Path) -> dict[str, Any]:
    return {"port": Original(), "hf_model": Original(), "token_ids": torch.tensor([[3, 1, 4, 1, 5, 9]])}


def a_backend(place: Path) -> dict[str, Any]:
    """Two operators of a program that is lowered, beside the files of a run."""
    exported = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.randn(2, 4),))
    graph = to_edge_transform_and_lower(exported).exported_program().graph
    add, relu = [node for node in graph.nodes if node.op == "call_function"][-2:]
    shutil.copy("debug_buffer.bin", "debug_output.bin")
    gaps = etviz.load("build/").gaps
    row = gaps.index[gaps["kind"] == "delegate"][0]
    return {"add": add, "relu": relu, "processed_bytes": b"program", "row": int(row)}


def a_llama(place: Path) -> dict[str, Any]:
    """A layer of upstream's Llama with plain attention, and the files of two calls."""
    recipe = Recipe({"n_layers": 1}, custom=False)
    model, calls = model_of(recipe), calls_of(2)
    etviz.debug(model, calls, partitioner=[XnnpackPartitioner()], strict=False, workdir=".")
    shutil.copytree(".", "run", ignore=shutil.ignore_patterns("run", "build", "folder", "fp32", "int8"))
    return {"model": model, "tokens": [token for token, _ in calls], "right_model": model_of(recipe)}


def a_model_for_arm(place: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    model, inputs = Cnn().eval(), (torch.randn(1, 3, 16, 16),)
    images = [(torch.randn(1, 3, 16, 16),) for _ in range(2)]
    return {"model": model, "inputs": inputs, "images": images, "batches": images, "row": "#1"}


OWN = {
    **{"calls": an_app, "decode": a_decoder, "parity": a_port},
    **{"backends": a_backend, "language-models": a_llama, "emulated": a_model_for_arm},
}
"""What a page takes as known, where it is no model with inputs and a run."""


def quantized(known: dict[str, Any]) -> dict[str, Any]:
    """A quantized program, lowered by upstream; the files become those of its run."""
    prepared = prepare_pt2e(known["exported"].module(), known["quantizer"])
    prepared(*known["inputs"])
    program = torch.export.export(convert_pt2e(prepared), known["inputs"])
    parts = [known["XnnpackPartitioner"]()]
    etviz.debug(program, known["inputs"], partitioner=parts, workdir=".")
    edge = known["to_edge_transform_and_lower"](program, partitioner=parts, generate_etrecord=True)
    return {"quantized_program": program, "edge": edge, "program": edge.to_executorch()}


def run_probes(known: dict[str, Any]) -> None:
    """What the user's runner does with the program and its probes."""
    Path("outputs").mkdir()
    for path in (Path("model.pte"), *Path("probes").glob("probe-*.pte")):
        values = execute(path, [known["inputs"]]).outputs[0]
        known["values"] = values
        for at, value in enumerate(values):
            value.contiguous().numpy().tofile(f"outputs/{path.stem}-{at}.bin")


def snippets(page: str) -> list[tuple[str, str]]:
    """Language and text of each, in order."""
    path = ROOT / "README.md" if page == "README" else ROOT / "docs" / f"{page}.md"
    return re.findall(r"^```(\w+)\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def left_out(text: str) -> bool:
    return text.removeprefix("$ ").startswith(tuple(LEFT_OUT))


def command(line: str) -> None:
    """A command of etviz; what judges a program ends with status 0 or 1."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    assert words[0] == "etviz"
    ended = CliRunner().invoke(app, words[1:])
    assert ended.exit_code in ((0, 1) if words[1] in ("check", "why", "verify") else (0,)), (line, ended.output)


def test_every_snippet_is_executed_or_named() -> None:
    """A page without a line above, a language that is not executed, and a name that no page has any more."""
    pages = {"README", *(path.stem for path in (ROOT / "docs").glob("*.md"))}
    assert {page for page in pages if snippets(page)} == {*PAGES}
    kinds = {(page, kind) for page in PAGES for kind, _ in snippets(page)}
    assert {(page, kind) for page, kind in kinds if kind not in ("python", *SHELL)} == {*OTHERS}
    lines = [line for page in PAGES for kind, text in snippets(page) for line in text.splitlines() if kind in SHELL]
    begins = [*lines, *(text for page in PAGES for kind, text in snippets(page) if kind == "python")]
    assert [start for start in LEFT_OUT if not any(text.removeprefix("$ ").startswith(start) for text in begins)] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_from_top_to_bottom(page: str, executed: Make, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "emulated" and not TOSA:
        pytest.skip("the extra tosa is not installed; make test-tosa executes this page")
    monkeypatch.setitem(interpreters.INTERPRETERS, "LoopsBackend", interpreters.Interpreter(""))  # a page replaces it
    known = names(page, executed, place)
    for kind, text in snippets(page):
        if page == "quantization":
            gaps = known["inspection"].gaps
            known["row"] = next(iter(gaps.index[gaps["kind"] == "delegate"]), 0)
        elif text.startswith("suggestion"):  # of an Inspection that knows its model
            known["inspection"] = known["debugged"]
        elif text.startswith("xnnpack"):  # four variants, each of which runs on all of them
            known["dataset"] = known["dataset"][:4]
        if kind in SHELL:
            for line in text.splitlines():
                if line.startswith("$ runner") and not Path("outputs").exists():
                    run_probes(known)
                if not left_out(line):
                    command(line)
        elif kind == "python" and not left_out(text):
            exec(compile(text, f"{page}.md", "exec"), known)
