"""`etviz.load`: from artifacts to an Inspection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

from etviz.artifacts.etdump import RunBlock
from etviz.artifacts.files import PathLike
from etviz.artifacts.ir import Graph
from etviz.artifacts.record_file import LISTINGS
from etviz.collection import collection_paused
from etviz.errors import EtvizError, UsageError
from etviz.inspection import Findings, Inspection
from etviz.numerics.blank_tail import blank_tail, drop_blank_tail
from etviz.numerics.compare_handles import compare_by_handles
from etviz.numerics.comparison import Comparison, compare_exact
from etviz.numerics.handle_groups import HandleGroups, logged_inputs_of
from etviz.numerics.inputs import Inputs, choose_inputs, doubtful, forget_totals, starts_far_off
from etviz.numerics.recall import KEPT_BYTES
from etviz.numerics.reference import Evaluator
from etviz.numerics.replay import Execution, Replay
from etviz.numerics.runtime_log import RuntimeLog
from etviz.profile import MetadataParser, Profile, instruction_latency, scale_factor
from etviz.sources import Files

_FIRST_FAR_OFF: Final = "The first operators are far off while the others are not: "
_OR_OTHER_INPUTS: Final = "they are at fault, or the run had other inputs than inputs=."
_OTHER_INPUTS: Final = (
    "the run most likely had other inputs. If it had these, say so with inputs=; then the first operators are at fault."
)


def load(
    etdump: PathLike,
    *,
    etrecord: PathLike | None = None,
    debug_buffer: PathLike | None = None,
    pte: PathLike | None = None,
    record: PathLike | None = None,
    inputs: Any = None,
    method: str | None = None,
    delegate_metadata_parser: Callable[[list[bytes]], Any] | None = None,
    source_time_scale: str = "ns",
    introduced: bool = True,
) -> Inspection:
    """Read artifacts, as they come from a device or a runner, and compare them with their reference.

    What can't be shown without a missing piece is said in `Inspection.summary()`, not guessed.

    Parameters
    ----------
    etdump
        What the runtime recorded.
    etrecord
        The AOT graphs, weights and representative inputs.
    debug_buffer
        The tensors that the runtime logged; without it there is no gap.
    pte
        The program.
    record
        The record file for exact pairing; by default ``model.etviz`` beside the `.pte`, if it is there.
    inputs
        The inputs of the run: a tuple, or a list with a tuple for each execution. By default the ETRecord's.
    method
        Name of the method, if the program has several.
    delegate_metadata_parser
        Takes what a backend attached to the samples of an event (a list of bytes); what it returns is the column
        ``delegate_debug_metadatas`` of `Inspection.events`.
    source_time_scale
        Unit of the device's clock: ``ns``, ``us``, ``ms``, ``s`` or ``cycles``.
    introduced
        Also replay every instruction on the runtime's own inputs. False takes about half the time; ask for it later
        with `Inspection.compute_introduced`.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged, or does not belong to the others.
    UsageError
        If an argument makes no sense.
    PairingError
        If the reference can't be computed.
    """
    if delegate_metadata_parser is not None and not callable(delegate_metadata_parser):
        raise UsageError(
            "delegate_metadata_parser must be a function of a list of bytes, "
            f"found {type(delegate_metadata_parser).__name__}"
        )
    with collection_paused():
        files = Files(etdump, etrecord, debug_buffer, pte, record)
        factor = scale_factor(source_time_scale)
        return Inspection(read(files, inputs, method, factor, delegate_metadata_parser, introduced=introduced))


def read(
    files: Files,
    inputs: Any,
    method: str | None,
    factor: float,
    parser: MetadataParser | None = None,
    *,
    ran_here: bool = False,
    introduced: bool = True,
) -> Findings:
    """Compare what the files hold.

    Parameters
    ----------
    files
        The opened artifacts.
    inputs, method
        As for `load`.
    factor
        Milliseconds of one unit of the device's clock.
    parser
        As `delegate_metadata_parser` of `load`.
    ran_here
        The program ran on `inputs` a moment ago, so they are not doubted when the first operators are far off.
    introduced
        Replay every instruction on the runtime's inputs now, not when it is asked for.
    """
    files.check_etrecord()
    graphs = files.graphs()
    chosen = _choose(method, list(graphs))
    name = Path(files.named.get("pte", files.named["etdump"])).name
    findings = Findings(title=f"{name} ({chosen})", method=chosen, graphs=graphs, files=files.named)
    files.restore(chosen)
    executions = files.executions(chosen)
    timed = [block for _, block in executions]
    findings.latency = instruction_latency(timed, factor)
    findings.profile = Profile([*(b for b in files.dump.blocks if b.name != "Execute"), *timed], factor, parser)
    findings.notes.extend(files.dump.problems)
    findings.delegation = files.delegation(chosen)
    if files.record is not None:
        findings.listing = files.record.extra.get(LISTINGS, {}).get(chosen, "")
    if not executions:
        others = any(block.name == "Execute" for block in files.dump.blocks)
        findings.notes.append(
            f"The ETDump holds no execution of the method {chosen}; say with method= which one was run."
            if others
            else "The ETDump holds no execution, only the loading of the program."
        )
    elif files.buffer is None:
        findings.notes.append("There is no debug buffer, so no value can be compared; give debug_buffer=.")
    elif files.buffer.is_blank(files.dump.tensor_refs()):
        findings.notes.append(
            "All logged tensors are zero: the debug buffer was not written, or is of another run. Nothing is compared."
        )
    elif files.record is not None or files.edge(chosen) is not None:
        try:
            _compare(findings, files, chosen, executions, inputs, ran_here=ran_here, introduced=introduced)
        except EtvizError:
            files.finish()  # that the record is another program's is the better reason
            raise
    else:
        findings.notes.append(
            "There is no reference, so no value can be compared; give etrecord=, or record= with the weights in it."
        )
    if not introduced and findings.runs:
        findings.complete = partial(_complete, files, executions, inputs, ran_here)
    if not findings.runs:
        _leave_out(findings, executions)
    files.finish()
    return findings


def _complete(
    files: Files, executions: Sequence[tuple[int, RunBlock]], inputs: Any, ran_here: bool, findings: Findings
) -> None:
    """Compare again, now with introduced gaps."""
    again = replace(findings, runs=[], notes=[])
    _compare(again, files, findings.method, executions, inputs, ran_here=ran_here, introduced=True)
    findings.runs, findings.replay, findings.complete = again.runs, again.replay, None


def _leave_out(findings: Findings, executions: Sequence[tuple[int, RunBlock]]) -> None:
    """Where nothing could be compared, say so for each instruction of each execution."""
    reason = findings.notes[-1].partition(";")[0].rstrip(".")
    reason = reason[0].lower() + reason[1:]
    instructions = [node.instruction for node in findings.graphs[findings.method].walk() if node.instruction >= 0]
    findings.runs = [(at, -1, Comparison(reasons=dict.fromkeys(instructions, reason))) for at, _ in executions]


def _choose(method: str | None, methods: Sequence[str]) -> str:
    if method is None:
        if not methods or "forward" in methods:
            return "forward"
        if len(methods) == 1:
            return methods[0]
        raise UsageError(f"the program has the methods {', '.join(methods)}; say which with method=")
    if methods and method not in methods:
        raise UsageError(f"the program has no method {method!r}; it has {', '.join(methods)}")
    return method


def _compare(
    findings: Findings,
    files: Files,
    method: str,
    executions: Sequence[tuple[int, RunBlock]],
    given: Any,
    *,
    ran_here: bool,
    introduced: bool,
) -> None:
    candidates = files.inputs(given, method)
    if not candidates:
        findings.notes.append(
            "The inputs of the run are not known, so there is no reference; give inputs=, "
            "or an ETRecord with representative inputs."
        )
        return
    if isinstance(given, list) and len(candidates) > 1 and len(candidates) != len(executions):
        raise UsageError(f"inputs holds {len(candidates)} tuples, the ETDump holds {len(executions)} executions")
    evaluator = files.evaluator(method)
    groups = _handle_groups(findings, files, method, evaluator.graph)
    budget, replay = KEPT_BYTES, Replay(lambda: files.evaluator(method))
    blank = blank_tail(files.buffer, files.dump.tensor_refs()) if files.buffer is not None else None
    for run, (at, block) in enumerate(tqdm(executions, desc="compare", leave=False, delay=1)):
        log = RuntimeLog(block, files.buffer)
        told = block.bundled_input_index
        first = told if told is not None and told < len(candidates) else run % len(candidates)
        others = [] if isinstance(given, list) else [i for i in range(len(candidates)) if i != first]
        state = dict(evaluator.state)
        compare = partial(_compare_run, files, groups, evaluator, log, candidates, run, budget, introduced)
        inputs, comparison, doubted = compare(first)
        doubted = doubted and not ran_here
        while doubted and others:  # an ETDump does not say which inputs went in
            evaluator.state = dict(state)
            inputs, comparison, doubted = compare(others.pop(0))
        note = inputs.note
        sure = given is not None and inputs.known
        if doubted:
            note = _FIRST_FAR_OFF + (_OR_OTHER_INPUTS if sure else _OTHER_INPUTS)
        if note and note not in findings.notes:
            findings.notes.append(note)
        if not inputs.known or (note and inputs.index >= 0 and not sure):
            forget_totals(evaluator.graph, comparison, "the inputs of the run are not known: only introduced gaps")
        lost = drop_blank_tail(comparison, log, blank) if blank is not None else ""
        if lost and lost not in findings.notes:
            findings.notes.append(lost)
        budget -= comparison.kept
        replay.executions.append(Execution(inputs.values, log))
        findings.runs.append((at, inputs.index, comparison))
    if files.has_float(method):
        replay.fresh_float = lambda: files.float_evaluator(method)
    findings.replay = replay


def _compare_run(
    files: Files,
    groups: HandleGroups | None,
    evaluator: Evaluator,
    log: RuntimeLog,
    candidates: Sequence[Sequence[Any]],
    run: int,
    budget: int,
    introduced: bool,
    expected: int,
) -> tuple[Inputs, Comparison, bool]:
    """Compare on the expected candidate, or on what was logged; and say whether these inputs are to be doubted."""
    logged = None if groups is None else logged_inputs_of(groups, log)
    inputs = choose_inputs(evaluator.graph, log, candidates, expected, logged)
    if groups is None:
        pairing = "exact" if files.record is not None else "derived"
        compare = partial(compare_exact, evaluator, log, inputs.values, run=run, budget=budget, pairing=pairing)
    else:
        compare = partial(compare_by_handles, evaluator, log, inputs.values, groups, run=run, budget=budget)
    before = dict(evaluator.state)
    found = compare(introduced=introduced)
    if not introduced and starts_far_off(evaluator.graph, found):  # introduced gaps tell why
        evaluator.state = before
        found = compare()
    return inputs, found, inputs.known and inputs.index >= 0 and doubtful(evaluator.graph, found)


def _handle_groups(findings: Findings, files: Files, method: str, edge: Graph) -> HandleGroups | None:
    """What debug handles tell, None where the graph of the reference has the instructions."""
    if files.record is not None or method in files.derived:
        return None
    handles = files.etrecord.debug_handles(method) if files.etrecord is not None else {}
    return HandleGroups(edge, findings.graphs[method], handles)
