"""Readers do work in proportion to what a file holds: function calls are counted, no clock is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

import etviz
from etviz.analysis.profile import Profile
from etviz.artifacts.etdump.debug_buffer import first_misplaced
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.flatbuffer import FlatBuffer
from etviz.artifacts.probes import read_table
from etviz.artifacts.program.program import read_program
from etviz.errors import ArtifactError, UsageError
from etviz.graph.ir import Graph
from etviz.loading.given_outputs import _GivenOutputs  # pyright: ignore[reportPrivateUsage]
from etviz.pipeline.execute import execute
from tests.artifacts.conftest import Run
from tests.counting import calls
from tests.programs import Executed


def probes(folder: Path, count: int, outputs: int = 3) -> Path:
    value = {"instruction": 0, "index": 0, "position": 1, "dtype": "float32", "shape": [2], "order": [0]}
    entries = [
        {
            "name": f"probe-{number}",
            "values": [value | {"dynamic": False, "inside": ""}],
            "outputs": outputs,
            "mark": [1, 2, number],
        }
        for number in range(count)
    ]
    body = {"format": "etviz-probes", "version": 1, "method": "forward", "pte_checksum": "x", "own": 1, "missing": {}}
    path = folder / "probes.json"
    path.write_text(json.dumps(body | {"probes": entries}))
    return path


def test_a_table_of_many_probes_is_read_and_asked_in_linear_time(tmp_path: Path) -> None:
    def look(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(0, count, 2):
            (folder / f"probe-{number}-0-0.bin").touch()
        path = probes(folder, count)

        def work() -> None:
            table = read_table(path)
            given = _GivenOutputs(folder, table, [])
            assert given.probed
            for name in table.by_name:
                given._count(name)  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(UsageError, match="there is no probe") as error:
                _GivenOutputs({str(number): [1] for number in range(count)}, table, [])
            assert len(str(error.value)) < 1000

        return calls(work)

    few, many = look(500), look(1000)
    assert many < 2.2 * few


def test_a_probe_with_more_outputs_than_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="which does not fit its values"):
        read_table(probes(tmp_path, 1, outputs=10**12))


def test_a_table_of_probes_claims_no_more_outputs_than_the_program_has(
    executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    """A list of that many outputs would fill the memory."""
    path = probes(tmp_path, 1)
    body = json.loads(path.read_text())
    body["own"], body["probes"][0]["outputs"] = 10**12, 10**12 + 1
    path.write_text(json.dumps(body))
    etrecord, pte = (executed("encoder").path(kind) for kind in ("etrecord", "pte"))
    with pytest.raises(ArtifactError, match=r"a program with 1,000,000,000,000 outputs; this one has \d"):
        etviz.load(outputs={"probe-0": [1]}, etrecord=etrecord, pte=shutil.copy(pte, tmp_path / "model.pte"))


def test_the_times_of_many_executions(long_run: Run) -> None:
    """A report asks for the typical execution and for the joined events once an execution."""
    blocks = [block for block in read_etdump(long_run.etdump).blocks if block.name == "Execute"][:20]
    graph = Graph("forward")

    def look(times: int) -> int:
        profile = Profile(blocks * times)
        return calls(lambda: [(profile.typical, profile.joined(graph)) for _ in profile.executions])

    assert look(8) <= 2.2 * look(4)


def test_many_event_blocks(long_run: Run) -> None:
    """Each block costs the same, however many there are."""
    blocks = [block for block in read_etdump(long_run.etdump).blocks if block.debug][:20]

    def look(times: int) -> int:
        return calls(lambda: [first_misplaced(block.tensor_refs()) for block in blocks * times])

    assert look(8) <= 2 * look(4) + 10


def test_many_executions_are_judged_in_linear_time(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """From the files to the summary, of a program that keeps state."""
    program = executed("counter")

    def look(times: int) -> int:
        inputs = [(program.inputs[0] + number,) for number in range(times)]
        run = execute(program.path("pte"), [list(values) for values in inputs], workdir=tmp_path / str(times))
        files: dict[str, Any] = {kind: program.path(kind) for kind in ("pte", "record", "etrecord")}

        def work() -> None:
            found = etviz.load(run.etdump, debug_buffer=run.debug_buffer, **files, inputs=inputs)
            assert len(found.outputs) == times
            assert found.summary()

        return calls(work)

    look(2)  # what is imported and cached once
    few, more, many = look(80), look(160), look(240)
    assert (many - more) - (more - few) < 80 * 80, "less than a call for each pair of executions"


def test_a_program_with_very_many_instructions_is_refused(runs: dict[str, Run], tmp_path: Path) -> None:
    file: Any = deserialize_pte_binary(runs["partly"].pte.read_bytes())
    chain = file.program.execution_plan[0].chains[0]
    least = len(chain.instructions)

    def look(times: int) -> int:
        chain.instructions = [*chain.instructions[:least]] * times
        path = tmp_path / f"{times}.pte"
        path.write_bytes(bytes(serialize_pte_binary(file)))
        return calls(lambda: read_program(path))

    few, many = look(10), look(20)
    assert many < 2.2 * few
    content = bytearray((tmp_path / "20.pte").read_bytes())
    buffer = FlatBuffer(bytes(content), "20.pte", "program", "")
    length = int(buffer.root().vectors(1).tables().vectors(5).tables().vectors(2).start[0]) - 4
    content[length : length + 4] = (140_000).to_bytes(4, "little")
    content += bytes(1 << 20)
    content[16:24] = len(content).to_bytes(8, "little")  # where the extended header says that the flatbuffer ends
    (tmp_path / "claims.pte").write_bytes(content)
    with pytest.raises(ArtifactError, match="140,000 instructions; etviz reads up to 131,072") as refused:
        read_program(tmp_path / "claims.pte")
    assert "damaged" not in str(refused.value)
