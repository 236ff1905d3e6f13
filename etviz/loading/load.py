"""From artifacts to findings, in stages: open, pair, compare, put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.findings import Compared, Findings
from etviz.analysis.profile import MetadataParser, Profile, TimeConverter, emulated_calls, instruction_latency
from etviz.artifacts.etdump.debug_buffer import first_misplaced
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.artifacts.known_files import identity
from etviz.comparison.gap import NOT_COMPARED, ExecutionGaps, Run
from etviz.comparison.input_checks import FIRST_FAR_OFF, forget
from etviz.comparison.judging import is_calm
from etviz.comparison.measurement import add_unpaired, as_tensor, different
from etviz.errors import ArtifactError, EtvizError
from etviz.evaluation.operator_rules import OperatorError
from etviz.evaluation.values import flat_values
from etviz.graph.state_threading import seen_later
from etviz.loading.executions import NO_INPUTS, compare_executions
from etviz.loading.foreign import Foreign
from etviz.loading.isolation import is_foreign
from etviz.loading.method_calls import named_calls, with_calls
from etviz.loading.paired import Paired, pair, timed_executions
from etviz.loading.trainings import require_one_training
from etviz.pipeline.interpreters import emulated_by
from etviz.tensors.custom_metrics import choose
from etviz.tensors.sums import sums_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etviz.artifacts.etdump.etdump import RunBlock
    from etviz.artifacts.files import PathLike
    from etviz.evaluation.own_operators import OwnFunctions
    from etviz.graph.ir import Node
    from etviz.loading.artifact_set import ArtifactSet

_EMULATED: Final = "Emulated: {} computed the delegates; no device ran them, so there are no latencies of delegates."
_LOGGED: Final = (
    "times were taken while values were logged, which takes time too; timing= gives the times of a plain run"
)
_PLAIN: Final = "times are those of {} execution{} without a debug buffer"
_ALIEN: Final = "most likely have another program's reference"
_OTHERS: Final = "the ETRecord is most likely that of another program"
_OTHER_PROGRAM: Final = (
    "{} in {}: most likely that is the ETRecord of another program, or a pass changed the operator after it was "
    "written. Give the ETRecord of the program that ran{}."
)
_DISTORTED: Final = 1.2


def read(
    artifacts: ArtifactSet,
    inputs: Any,
    method: str | None,
    factor: float,
    parser: MetadataParser | None = None,
    *,
    converter: TimeConverter | None = None,
    ran_here: bool = False,
    introduced: bool = True,
    metrics: Iterable[Any] | None = None,
    title: str = "",
    notes: tuple[str, ...] = (),
    remarks: Mapping[int, str] = MappingProxyType({}),
    timing: PathLike | None = None,
    keep_alive: Any = None,
) -> Findings:
    """`factor` is milliseconds of one unit of the device's clock.

    `remarks` are on an instruction's values, or their absence. The folder `keep_alive` has to last as long as the
    findings.
    """
    chosen = artifacts.method(method)
    paired = pair(artifacts, chosen)
    calls = named_calls(inputs)
    if calls is not None:
        paired = with_calls(paired, calls)[0]
    custom = choose(metrics)
    foreign = Foreign(paired) if is_foreign(artifacts.named, inputs, ran_here=ran_here) else None

    def compare(*, introduced: bool, functions: OwnFunctions | None = None) -> Compared:
        how: dict[str, Any] = {"ran_here": ran_here, "introduced": introduced}
        if foreign is not None:
            compared = foreign.compare(inputs, functions, custom, how)
        else:
            compared = compare_executions(replace(paired, own_operators=functions), inputs, custom=custom, **how)
        _remark(compared, remarks)
        return compared

    emulated = emulated_calls(artifacts.dump.blocks)
    remarks = {at: emulated_by(name) for at, name in emulated.items()} | dict(remarks)
    if emulated:
        notes = (_EMULATED.format(", ".join(dict.fromkeys(emulated.values()))), *notes)
    missing = _missing(paired, ran_here=ran_here)
    constants = paired.comparing_constants() if not ran_here else None
    try:
        compared = compare(introduced=introduced) if not missing else Compared(notes=(missing,))
    except EtvizError as error:
        artifacts.finish()  # that the record is another program's is the better reason
        if ran_here or not isinstance(error, OperatorError):
            raise
        raise error.in_file(artifacts.named["record" if artifacts.record is not None else "etrecord"]) from None
    if not ran_here:
        notes = (*require_one_training(paired, compared.runs, constants), *notes)
        compared = _without_culprits(paired, compared)

    def again(functions: OwnFunctions | None = None) -> Compared:
        return _without_culprits(paired, compare(introduced=True, functions=functions))

    complete = again if compared.runs and not introduced else None
    if not compared.runs:
        compared = _left_out(paired, compared.notes)
    blocks = paired.artifacts.dump.blocks
    timed, note = _timed(paired, timing, factor)
    findings = Findings(
        title=f"{title or Path(artifacts.named.get('pte') or artifacts.named.get('etdump', '')).name} ({chosen})",
        method=chosen,
        methods=artifacts.methods,
        graph=paired.graph,
        compared=compared,
        complete=complete,
        with_operators=again if compared.runs and not missing else None,
        latency=instruction_latency(timed, factor),
        profile=Profile(
            [*(block for block in blocks if block.name != "Execute"), *timed],
            factor,
            parser,
            converter,
            note,
            distorted=note == _LOGGED,
        ),
        delegation=paired.delegation,
        listing=paired.listing,
        refusals=paired.refusals,
        delegate_info=artifacts.etrecord.delegate_info(chosen) if artifacts.etrecord is not None else {},
        constants=constants.result() if constants is not None else (),
        notes=(*paired.artifacts.dump.problems, *_misplaced(paired), *_given_outputs(paired, compared), *notes),
        files=artifacts.named,
        program_state=identity(artifacts.named["pte"]) if "pte" in artifacts.named else "",
        check_files=artifacts.buffer.check if artifacts.buffer is not None else lambda: None,
        inner_handles=artifacts.etrecord.delegate_handles(chosen) if artifacts.etrecord is not None else {},
        keep_alive=keep_alive,
    )
    artifacts.finish()
    return findings


def _without_culprits(paired: Paired, compared: Compared) -> Compared:
    """Where values differ, and the ETRecord's sizes are not the run's, its operators are not to blame."""
    loud = [run.comparison for run in compared.runs if not is_calm(run.comparison)]
    outputs = (pair for item in loud for pair in zip(item.reference_outputs, item.runtime_outputs, strict=False))
    sizes = paired.other_sizes() if loud and not any(different(*pair) for pair in outputs) else ""
    if not sizes:
        return compared
    for comparison in loud:
        forget(comparison, _OTHERS)
        comparison.undetermined = _ALIEN
    notes = (note for note in compared.notes if not note.startswith(FIRST_FAR_OFF))
    named = paired.artifacts.named
    more = "" if "pte" in named else ", or the program too (pte=)"
    said = _OTHER_PROGRAM.format(f"{sizes[0].upper()}{sizes[1:]}", named["etrecord"], more)
    return replace(compared, notes=(said, *notes))


def _timed(paired: Paired, timing: PathLike | None, factor: float) -> tuple[list[RunBlock], str]:
    logged = [block for _, block in paired.executions]
    if timing is None:
        return logged, _LOGGED if any(block.debug for block in logged) else ""
    blocks = timed_executions(paired, read_etdump(timing))
    if not blocks:
        raise ArtifactError(timing, f"it holds no execution of the method {paired.method}", "give another timing=")
    blocks = blocks[1:] or blocks  # the first one also warms up
    plain, slow = (sum(instruction_latency(some, factor).values()) for some in (blocks, logged))
    note = f"{_PLAIN.format(len(blocks), '' if len(blocks) == 1 else 's')}"
    if plain > 0 and slow > _DISTORTED * plain:
        note += f"; logging values made the run {slow / plain:.3g} times as long"
    return blocks, note


def _remark(compared: Compared, remarks: Mapping[int, str]) -> None:
    for run in compared.runs:
        for gap in run.comparison.gaps:
            gap.add_note(remarks.get(gap.instruction, ""))
        silent = run.comparison.reasons.keys() & remarks.keys()
        run.comparison.reasons |= {instruction: remarks[instruction] for instruction in silent}


def _given_outputs(paired: Paired, compared: Compared) -> Iterator[str]:
    etrecord = paired.artifacts.etrecord
    stored = etrecord.reference_outputs(paired.method) if etrecord is not None else []
    for run in compared.runs:
        if not 0 <= run.input_index < len(stored) or not run.comparison.reference_outputs:
            continue
        stored_outputs, runtime = flat_values([stored[run.input_index]]), run.comparison.runtime_outputs
        for output, (given, expected) in enumerate(zip(stored_outputs, run.comparison.reference_outputs, strict=False)):
            a, b = as_tensor(given), as_tensor(expected)
            q = as_tensor(runtime[output]) if output < len(runtime) else None
            if a is None or b is None or a.shape != b.shape:
                yield f"The ETRecord's reference output {output} has another shape than the evaluated reference."
                return
            sums = sums_of(b, a)
            if sums.close < sums.elements:
                off = f"; the runtime is off by up to {sums_of(a, q).max_d:.3g} from it" if q is not None else ""
                yield (
                    f"The ETRecord's reference output {output} differs from the evaluated reference by up to "
                    f"{sums.max_d:.3g}{off}: it was computed with another model, other inputs or another version."
                )
                return


def _misplaced(paired: Paired) -> Iterator[str]:
    for at, block in () if paired.artifacts.dump.problems else paired.executions:
        offset = first_misplaced(block.tensor_refs())
        if offset is not None:
            yield (
                f"In event block {at}, the value at offset {offset:,} of the debug buffer is not where the runtime "
                "would have written it: offsets were altered, or the files are of two runs."
            )


def _missing(paired: Paired, *, ran_here: bool) -> str:
    artifacts = paired.artifacts
    if not paired.executions:
        if any(block.name == "Execute" for block in artifacts.dump.blocks):
            return f"The ETDump holds no execution of the method {paired.method}; say with method= which one was run."
        return "The ETDump holds no execution, only the loading of the program."
    if artifacts.buffer is None:
        return "There is no debug buffer, so no value can be compared; give debug_buffer=."
    doubted = "debug_buffer" in artifacts.named and not ran_here
    if doubted and artifacts.buffer.is_blank(artifacts.dump.tensor_refs()):
        return (
            "All logged tensors are zero: the debug buffer was not written, or is of another run. Nothing is compared."
        )
    if not paired.has_reference:
        return "There is no reference, so no value can be compared; give etrecord=, or record= with the weights in it."
    return ""


def _left_out(paired: Paired, notes: tuple[str, ...]) -> Compared:
    reason = notes[-1].partition(";")[0].rstrip(".")
    reason = reason[0].lower() + reason[1:]
    nodes = [node for node in paired.graph.walk() if node.instruction >= 0]
    buffer, runs = paired.artifacts.buffer, []
    sound = buffer is not None and not buffer.is_blank(paired.artifacts.dump.tensor_refs())
    shown = sound and (not paired.has_reference or notes[-1] == NO_INPUTS)
    for number, (at, block) in enumerate(paired.executions):
        result = ExecutionGaps(reasons={node.instruction: reason for node in nodes}, run=number)
        if shown:
            log = RuntimeLog(block, buffer, seen_later(paired.graph))
            for node in nodes:
                values, note = _logged_values(paired, log, node)
                if node.target == "delegate" and not note:
                    whole = log.values(node.instruction)
                    result.delegate_inputs[node.instruction] = [*whole[: len(whole) - len(values)]]
                for output, value in enumerate(values):
                    gap = add_unpaired(result, node, output, value, None, reason + note, paired.pairing)
                    if gap is not None:
                        gap.status = NOT_COMPARED
            result.runtime_outputs = log.outputs()
        runs.append(Run(at, -1, result))
    return Compared(tuple(runs), None, notes)


def _logged_values(paired: Paired, log: RuntimeLog, node: Node) -> tuple[Sequence[Any], str]:
    program = paired.artifacts.program
    call = program.method(paired.method).by_position.get((0, node.instruction)) if program is not None else None
    if node.target != "delegate":
        return log.values(node.instruction), ""
    outputs = log.last_values(node.instruction, len(call.outputs) if call is not None else len(node.outputs))
    if outputs is None:
        return log.values(node.instruction), "; the delegate logged its inputs first, and only pte= tells how many"
    return outputs, ""
