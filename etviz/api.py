"""How an Inspection is made: from a model, from artifacts, from an upstream Inspector; and several side by side."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from etviz.analysis.profile import AUTO, scale_factor
from etviz.analysis.tasks import choose
from etviz.artifacts.collection import collect, is_collection, programs
from etviz.artifacts.files import PathLike, collection_paused, only_user, room_for
from etviz.artifacts.in_memory import as_files
from etviz.artifacts.known_files import is_known
from etviz.artifacts.scratch import Scratch, sweep
from etviz.errors import ArtifactError, UsageError, checked, doing
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.isolation import WORKER, is_foreign
from etviz.pipeline.recipe import Recipe, lowering
from etviz.pipeline.worker import warm
from etviz.settings import options, use_libraries

if TYPE_CHECKING:
    import torch
    from executorch.devtools import Inspector
    from torch.export import ExportedProgram

    from etviz.analysis.analysis import Analysis
    from etviz.analysis.findings import Findings
    from etviz.inspection import Inspection
    from etviz.side_by_side import Comparison
    from etviz.view.widget.state import ViewState


@checked
def debug(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any],
    recipe: Recipe | str | None = None,
    *,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    reference: torch.nn.Module | ExportedProgram | None = None,
    strict: bool = True,
    workdir: PathLike | None = None,
    debug_buffer_size: int | None = None,
    timeout: float | None = None,
    runner: str | None = None,
    metrics: Iterable[Any] | None = None,
    libraries: Iterable[PathLike] | None = None,
    task: Any = None,
) -> Inspection:
    """Export, lower, run and compare a model in one call.

    Parameters
    ----------
    example_inputs
        A tuple of the model's arguments; the comparison runs on them. Of a model that keeps state, also a list with
        such a tuple for each call in order; the model is exported with the first.
    recipe
        ``"portable"``, ``"xnnpack"``, ``"xnnpack-int8"``, ``"openvino"``, ``"ethos-u55"`` and others (`etviz.recipe`),
        or an `etviz.recipe` of the next four arguments.
    partitioner
        Partitioners of the backends to delegate to; None means portable kernels only.
    quantizer, calibration
        A PT2E quantizer, and an iterable of input tuples to calibrate it on; by default the example inputs.
    reference
        If `model` is quantized already, the float model that `Inspection.quantization` compares with; with a
        `quantizer` etviz keeps it. Else the right model: the run is compared with it (`Inspection.against`), so a fault
        of the exported program itself is found.
    strict
        Passed to `torch.export.export`.
    runner
        ``"emulated"`` runs each delegate that the runtime here does not have in its vendor's reference implementation:
        the result is what the device computes by its specification.
    workdir
        Folder that keeps the artifacts (``model.pte``, ``etrecord.bin``, ``model.etviz``, ``etdump.etdp``,
        ``debug_buffer.bin``, ``timing.etdp``); a temporary one if None.
    debug_buffer_size
        Bytes; by default as large as the program needs.
    timeout
        Seconds for the run in the child process.
    metrics, libraries, task
        As for `load`.

    Raises
    ------
    LoweringError
        If upstream refuses the model.
    ExecutionError
        If the run fails.
    """
    from torch.utils._pytree import tree_leaves

    from etviz.pipeline.emulation import EMULATED, emulate
    from etviz.pipeline.execute import execute, time_again
    from etviz.pipeline.lower import lower

    how = lowering(recipe, partitioner=partitioner, quantizer=quantizer, calibration=calibration, strict=strict)
    if runner not in (None, EMULATED):
        raise UsageError(f"runner must be None or {EMULATED!r}, found {runner!r}; etviz.run starts a command")
    tasks = choose(task, (), "")
    use_libraries(libraries)
    warm()
    calls = _calls(example_inputs)
    temporary = None if workdir is not None else Scratch()
    folder = Path(temporary.name if temporary else workdir or "")
    with only_user(folder), room_for(folder):
        lowered = lower(model, calls[0], folder, reference=reference, **how)
        runs = [tree_leaves(tuple(call)) for call in calls]
        where: dict[str, Any] = {"workdir": folder, "timeout": timeout, "data": lowered.data}
        if runner == EMULATED:
            run, timing = emulate(lowered.pte, lowered.record, runs, **where), None
        else:
            run = execute(lowered.pte, runs, debug_buffer_size=debug_buffer_size, **where)
            timing = time_again(lowered.pte, runs, run, folder, timeout=timeout, data=lowered.data)
        with collection_paused(), doing("comparing the run with its reference"):
            artifacts = ArtifactSet.open(
                run.etdump or folder / "etdump.etdp",
                etrecord=lowered.etrecord,
                debug_buffer=run.debug_buffer,
                pte=lowered.pte,
                record=lowered.record,
                data=lowered.data,
            )
            given = tuple(calls[0]) if len(calls) == 1 else [tuple(call) for call in calls]
            findings = _read(
                artifacts,
                given,
                None,
                scale_factor("ns"),
                ran_here=True,
                metrics=metrics,
                title=type(model).__name__,
                timing=timing,
                keep_alive=temporary,
            )
        if isinstance(how["calibration"], Iterator):
            how |= {"quantizer": None, "calibration": None}
        made = {"model": model, "example_inputs": tuple(calls[0]), **how}
    analysis = _analysis(replace(findings, made=made, tasks=tasks))
    return _inspection(analysis if reference is None or analysis.is_quantized else analysis.against(reference))


def _calls(example_inputs: Sequence[Any]) -> Sequence[Sequence[Any]]:
    several = isinstance(example_inputs, list) and bool(example_inputs)
    return example_inputs if several and all(type(item) is tuple for item in example_inputs) else [example_inputs]


@checked
def load(
    etdump: PathLike | bytes | bytearray | Mapping[str, Any] | None = None,
    *,
    etrecord: PathLike | Any | None = None,
    debug_buffer: PathLike | bytes | bytearray | None = None,
    pte: PathLike | bytes | bytearray | None = None,
    record: PathLike | None = None,
    inputs: Any = None,
    method: str | None = None,
    delegate_metadata_parser: Callable[[list[bytes]], Any] | None = None,
    source_time_scale: Any = "ns",
    calls: PathLike | None = None,
    delegate_time_scale_converter: Callable[[str, int], float] | None = None,
    introduced: bool = True,
    metrics: Iterable[Any] | None = None,
    outputs: Any = None,
    data: PathLike | None = None,
    timing: PathLike | None = None,
    reference: Any = None,
    preprocessing: Callable[[int | str, Any], Any] | None = None,
    libraries: Iterable[PathLike] | None = None,
    task: Any = None,
) -> Inspection:
    """Read artifacts, as they come from a device or a runner, and compare them with their reference.

    `Inspection.summary()` names what a missing piece makes impossible. Files may also be bytes, and the ETRecord
    upstream's object.

    Parameters
    ----------
    etdump
        The runtime's recording; or a folder, a zip, a gzip or a microcontroller's log (with base64 blocks) that has it
        and others under the names that ExecuTorch's runners use. Several programs that belong together
        (``encoder.pte``, ``decoder.pte``) are a dict of these by name, or of dicts of this function's arguments:
        ``{"encoder": "enc/", "decoder": {"etdump": "dec.etdp", "pte": "decoder.pte"}}``, or a folder with files
        that begin with the name of their program (``decoder.etdp``). They become the `methods` of one Inspection; the
        first is shown first (or `method`), the others are read on request.
    outputs
        Outputs of a program, where there is no ETDump. Its final outputs: a list of tensors, numbers or raw files (a
        list of lists for several executions). Or the outputs of the probes of `etviz.probe`: a dict of lists by name
        (``probe-0``, …, and ``model`` for the unmodified program), a list with a list for each of them, or a folder
        with raw files ``probe-0-0.bin``, … (``probe-0-EXECUTION-OUTPUT.bin`` where there are several).
    etrecord
        The AOT graphs, weights and representative inputs.
    debug_buffer
        The tensors that the runtime logged; without it there is no gap, with it alone there are values and statistics.
    record
        The record file for exact pairing; by default ``model.etviz`` beside the `.pte`.
    inputs
        The inputs of the run: a tuple, or a list with a tuple for each execution; or a file of them, or several
        (``.safetensors``, ``.npz``, ``.npy``, ``.pt``, a raw file, also as ``x.bin:float32:1x3x224x224``, or a list of
        raw files); see the page "From artifacts". By default the ETRecord's, as far as what was logged proves them. Of
        a program with several methods, the calls of all in order: ``[("prefill", (tokens, 0)), ("decode", …)]``.
    calls
        A recording of the run's calls (`etviz.record_calls`), in place of `inputs`.
    method
        Name, if the program has several.
    delegate_metadata_parser
        Maps what a backend attached to the samples of an event (a list of bytes) to the column
        ``delegate_debug_metadatas`` of `Inspection.events`.
    source_time_scale
        Unit of the device's clock: ``ns``, ``us``, ``ms``, ``s`` or ``cycles``, or upstream's `TimeScale`; ``auto``
        takes cycles for a microcontroller's log, and else ns.
    delegate_time_scale_converter
        For backends with a separate clock: maps the name of an event inside a delegate and a time of that clock to
        milliseconds.
    introduced
        Also replay every instruction on the runtime's inputs. If False, the columns of introduced errors are empty; ask
        for them later with `Inspection.compute_introduced`.
    metrics
        Further metrics, each a column: names that were registered with ``etviz.metrics.register``, or comparators of
        the upstream Inspector (subclasses of `NumericalComparatorBase`), whose class names the column. By default
        all that were registered.
    data
        Weights outside of the `.pte` (`.ptd`): compared with the reference's.
    timing
        The ETDump of a run without a debug buffer, for latencies: logging values takes time too.
    reference
        The reference of total gaps, by default the lowered program; as for `Inspection.against`.
    preprocessing
        Applied to every value that a backend logged inside its delegates; as for `Inspection.zoom`.
    libraries
        Libraries with your operators: names of modules, or paths of shared libraries. They are added to
        ``etviz.options.operator_libraries`` for the session. No file can name one.
    task
        A measure of the outputs with which the verdict begins, as for `etviz.study`: ``"top1"`` for a classifier. By
        default top-1 and top-5 of outputs that are a softmax or come from a layer named as a classifier.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged, or does not belong to the others.
    PairingError
        If the reference can't be computed.
    """
    use_libraries(libraries)
    given = {name: value for name, value in locals().items() if value is not None}
    if (several := etdump if isinstance(etdump, Mapping) else programs(etdump)) is not None:
        return _load_programs(several, given)
    named = {"etdump": etdump, "etrecord": etrecord, "debug_buffer": debug_buffer, "pte": pte}
    paths, scratch = as_files(named)
    etdump = cast("PathLike | None", paths.pop("etdump"))
    again = None
    if outputs is None:
        again = {
            "etdump": etdump,
            **paths,
            "record": record,
            "data": data,
            "delegate_metadata_parser": delegate_metadata_parser,
            "delegate_time_scale_converter": delegate_time_scale_converter,
            "source_time_scale": source_time_scale,
            "timing": timing,
            "introduced": introduced,
            "metrics": metrics,
            "preprocessing": preprocessing,
            "task": task,
        }
    _callable("delegate_metadata_parser", delegate_metadata_parser, "a list of bytes")
    _callable("delegate_time_scale_converter", delegate_time_scale_converter, "an event's name and a time")
    _callable("preprocessing", preprocessing, "an identifier and a tensor")
    if (etdump is None) == (outputs is None):
        raise UsageError("give either an ETDump or outputs=")
    factor = scale_factor(source_time_scale)
    sweep()
    with collection_paused(), doing("reading and comparing the artifacts"):
        kept = None
        files: dict[str, Any] = {**paths, "record": record, "data": data}
        if etdump is not None and is_collection(etdump):
            collection = collect(etdump, [kind for kind, path in files.items() if path is not None])
            files = collection.paths | {kind: path for kind, path in files.items() if path is not None}
            etdump, kept = _etdump_of(etdump, files), collection.keep_alive
            timing = files.pop("timing", None) if timing is None else timing
            files.pop("timing", None)
            factor = scale_factor("cycles") if source_time_scale == AUTO and collection.cycles else factor
        _begin_imports({**files, "etdump": etdump}, inputs)
        inputs = _inputs(inputs, calls, method)
        common: dict[str, Any] = {"introduced": introduced, "metrics": metrics}
        if etdump is None:
            findings = _of_outputs(outputs, files, inputs, method, common)
        else:
            artifacts = ArtifactSet.open(etdump, **files)
            common |= {"keep_alive": (kept, scratch), "converter": delegate_time_scale_converter, "timing": timing}
            findings = _read(artifacts, inputs, method, factor, delegate_metadata_parser, **common)
        from_caller = {"preprocessing": preprocessing, "made": _example(inputs)}
        analysis = _analysis(replace(findings, tasks=choose(task, (), ""), **from_caller))
        analysis = _against(analysis, reference)
    return _inspection(analysis, partial(_method_view, again) if again is not None else None)


_OF_ALL: Final = (
    *("delegate_metadata_parser", "delegate_time_scale_converter", "source_time_scale", "introduced", "metrics"),
    *("reference", "task"),
)


def _load_programs(programs: Mapping[str, Any], named: Mapping[str, Any]) -> Inspection:
    if wrong := sorted(named.keys() - {"etdump", "libraries", "method", *_OF_ALL}):
        raise UsageError(f"{wrong[0]}= belongs to one program: give it in the dict of that program")
    common = {name: named[name] for name in _OF_ALL if name in named}
    names = tuple(programs)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError("give a dict of programs by name: a path for each, or a dict of load's arguments")
    if (shown := named.get("method", names[0])) not in names:
        raise UsageError(f"method must be one of {', '.join(names)}, found {shown!r}")

    def read_program(name: str) -> Inspection:
        program = programs[name]
        given = dict(program) if isinstance(program, Mapping) else {"etdump": program}
        if unknown := sorted(map(str, given.keys() - inspect.signature(load).parameters.keys())):
            raise UsageError(f"{name}: load has no argument {unknown[0]!r}")
        findings = load(**{**common, **given}).analysis.findings
        title = f"{name}: {findings.title}"
        analysis = _analysis(replace(findings, name=name, methods=names, title=title))
        return _inspection(analysis, lambda other: read_program(other).view)

    return read_program(shown)


def _inputs(inputs: Any, calls: PathLike | None, method: str | None) -> Any:
    if calls is not None:
        from etviz.artifacts.call_file import read_calls

        if inputs is not None:
            raise UsageError("give either inputs= or calls=")
        return read_calls(calls).inputs(method)
    if inputs is None:
        return None
    from etviz.artifacts.inputs import is_file_name

    if is_file_name(inputs):
        return [os.fspath(name) for name in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]
    return inputs


def _example(inputs: Any) -> dict[str, Any]:
    first = next(iter(_calls(inputs)), None)
    plain = isinstance(first, tuple) and bool(first) and not isinstance(first[0], str)
    return {"example_inputs": first} if plain else {}


def _method_view(given: Mapping[str, Any], name: str) -> ViewState:
    return load(**given, method=name).view


def _of_outputs(
    outputs: Any, files: dict[str, Any], inputs: Any, method: str | None, common: dict[str, Any]
) -> Findings:
    from etviz.loading.given_outputs import outputs_findings

    if files.pop("debug_buffer") is not None:
        raise UsageError("debug_buffer= means nothing without the ETDump that refers to it")
    return outputs_findings(outputs, inputs=inputs, method=method, **files, **common)


def _callable(name: str, value: Any, of: str) -> None:
    if value is not None and not callable(value):
        raise UsageError(f"{name} must be a function of {of}, found {type(value).__name__}")


def _etdump_of(source: PathLike, files: dict[str, Any]) -> Path:
    if "etdump" not in files:
        problem = "there is no ETDump in it (etdump.etdp, etdump.bin, *.etdump)"
        raise ArtifactError(source, problem, "name the file, or give outputs=")
    return files.pop("etdump")


def from_inspector(
    inspector: Inspector,
    *,
    etdump: PathLike | None = None,
    debug_buffer: PathLike | None = None,
    pte: PathLike | None = None,
    record: PathLike | None = None,
    inputs: Any = None,
) -> Inspection:
    """Take over what an upstream Inspector has read.

    Parameters
    ----------
    inspector
        An `executorch.devtools.Inspector`. Its time scales and its delegate_metadata_parser are kept.
    etdump, debug_buffer
        The files that it was made from. Without them the values come from the Inspector: without strides, and only of
        the first of several equal runs.
    pte, record, inputs
        As for `load`: they make the pairing derived or exact.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged, or does not belong to the others.
    UsageError
        If `inspector` is something else, or `debug_buffer` is given alone.
    PairingError
        If the reference can't be computed.
    """
    from etviz.loading.from_inspector import held_findings

    with collection_paused(), doing("reading what the Inspector holds"):
        analysis = _analysis(held_findings(inspector, etdump, debug_buffer, pte, record, inputs))
    return _inspection(analysis)


def _begin_imports(files: Mapping[str, PathLike | None], inputs: Any) -> None:
    """A foreign file's child process imports longest, so it begins first."""
    named = {kind: path for kind, path in files.items() if path is not None}
    foreign = is_foreign(named, inputs)
    if foreign and all(map(os.path.exists, named.values())):
        WORKER.warm()
    importlib.import_module("etviz.loading.load")
    if "etviz.inspection" not in sys.modules:
        if foreign:
            threading.Thread(target=_import_views, name="etviz-import").start()
        else:  # a thread would only take turns with the evaluation
            _import_views()


def _import_views() -> None:
    for name in ("etviz.analysis.analysis", "etviz.inspection"):
        importlib.import_module(name)
    if gc.get_freeze_count() == 0:  # modules stay, so the collector, which is to run soon, need not walk through them
        gc.freeze()
        gc.unfreeze()


def _read(*given: Any, **named: Any) -> Findings:
    from etviz.loading.load import read

    return read(*given, **named)


def _analysis(findings: Findings) -> Analysis:
    from etviz.analysis.analysis import Analysis

    return Analysis(findings)


def _against(analysis: Analysis, reference: Any) -> Analysis:
    from etviz.inspection import Inspection

    other = reference.analysis if isinstance(reference, Inspection) else reference
    return analysis if other is None else analysis.against(other)


def _inspection(analysis: Analysis, read_method: Callable[[str], ViewState] | None = None) -> Inspection:
    """A zoom executes a part of the `.pte`, so it starts unasked only for files written here."""
    from etviz.inspection import Inspection
    from etviz.view.widget.state import ViewState

    analysis.unfold()
    view = ViewState(analysis, read_method)
    view.suggest = partial(_suggest, weakref.ref(view))
    files = [path for kind, path in analysis.findings.files.items() if kind in ("pte", "record", "etrecord", "data")]
    if options.look_inside == "always" or (options.look_inside == "auto" and is_known(files)):
        analysis.insides.begin()
        weakref.finalize(view, analysis.insides.stop)
    return Inspection(analysis, view)


def _suggest(view: weakref.ref[ViewState]) -> Any:
    from etviz.evidence.suggestion import suggest

    state = view()
    inspection = state and state.shown and state.shown()
    if inspection is None:
        raise UsageError("the Inspection of this view is not held any more; run its cell again")
    return suggest(inspection)


def compare(*inspections: Inspection, labels: Sequence[str] | None = None) -> Comparison:
    """Put two or more Inspections side by side; the others are compared with the first.

    Where no program has a reference, and all are runs of one program, the first one's values are the reference.

    Parameters
    ----------
    labels
        By default their titles, numbered if equal.

    Raises
    ------
    UsageError
        If there are fewer than two, if something is no Inspection, or if the labels do not fit.
    """
    from etviz.inspection import Inspection
    from etviz.side_by_side import Comparison

    for inspection in inspections:
        if not isinstance(inspection, Inspection):
            raise UsageError(f"compare takes Inspections, found {type(inspection).__name__}")
    if len(inspections) < 2:
        raise UsageError(f"compare takes two or more Inspections, found {len(inspections)}")
    names = list(labels) if labels is not None else _titles(inspections)
    if len(names) != len(inspections) or len(set(names)) != len(names):
        raise UsageError(f"labels must be {len(inspections)} different names, found {names}")
    return Comparison(dict(zip(names, _against_first(inspections), strict=True)))


def _against_first(inspections: Sequence[Inspection]) -> Sequence[Inspection]:
    if any(inspection.analysis.tables.compared.replay is not None for inspection in inspections):
        return inspections
    try:
        return [inspection.against(inspections[0]) for inspection in inspections]
    except UsageError:
        return inspections


def _titles(inspections: Sequence[Inspection]) -> list[str]:
    titles = [inspection.analysis.title for inspection in inspections]
    counts = Counter(titles)
    return [f"{title} {index + 1}" if counts[title] > 1 else title for index, title in enumerate(titles)]
