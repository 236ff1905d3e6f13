"""Foreign files: this process reads them, a child process evaluates what they describe.

The child has limits of memory and time. If it fails, the error is the answer, and nothing is evaluated here.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import logging
import math
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.artifacts.etdump.value_writer import no_profile
from etviz.artifacts.known_files import identity
from etviz.artifacts.record.weights import Aligned
from etviz.artifacts.scratch import Scratch
from etviz.comparison.gap import Keeper
from etviz.errors import ArtifactError, EtvizError, ExecutionError
from etviz.evaluation.replay import QUESTION, Execution, Replay, piece, refuse
from etviz.graph.state_threading import seen_later
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.executions import compare_executions
from etviz.loading.isolation import WORKER, is_foreign
from etviz.loading.method_calls import named_calls
from etviz.loading.paired import HANDLES, Paired, pair
from etviz.pipeline.parcel import Json, Known, Packer, Unpacker
from etviz.pipeline.service import Line, serve, spared_memory
from etviz.settings import options
from etviz.tensors.custom_metrics import CustomMetrics

if TYPE_CHECKING:
    from etviz.analysis.findings import Compared
    from etviz.evaluation.own_operators import OwnFunctions
    from etviz.evaluation.replay import Log
    from etviz.graph.ir import Graph

logger = logging.getLogger(__name__)

_SECONDS_PER_BYTE: Final = 2e-6
_TIMES: Final = 8
"""Memory limit in multiples of the files' size, beside `options.isolation_megabytes`."""
_KEPT: Final = 4
_OFTEN: Final = 0.05
"""Seconds between two reports of progress."""
_NUMBERS: Final = itertools.count()


def replay_of(paired: Paired) -> Replay:
    if is_foreign(paired.artifacts.named, ran_here=True):
        return Replay(refuse, elsewhere=_Main(Foreign(paired)))
    return _replay_of(paired, [])


class Foreign:
    def __init__(self, paired: Paired) -> None:
        WORKER.warm()
        constants = paired.reference()[1] if paired.has_reference else {}
        self.paired = replace(paired, constants=constants)
        self._states = {kind: _state(path) for kind, path in paired.artifacts.named.items()}
        self._session = f"{os.getpid()}-{next(_NUMBERS)}"
        self._told = False

    def compare(
        self, given: Any, functions: OwnFunctions | None, custom: CustomMetrics, how: Mapping[str, Any]
    ) -> Compared:
        """`ExecutionError` if the child process crashes, or takes more memory or time than the files justify."""
        main, given = _Main(self, functions), _flat(self.paired, given)
        compared, problems = self.ask("compare", main, [given, functions, custom, dict(how), main.number])
        if functions is not None:
            functions.problems.update(problems)
        for kind, path in self.paired.artifacts.named.items():
            if _state(path) != self._states[kind]:
                raise ArtifactError(path, "the file was changed while it was read", "load it again when it is complete")
        return compared

    def ask(self, work: str, main: _Main, values: Any) -> Any:
        size = self.paired.artifacts.size
        limits = {
            "most": int(options.isolation_megabytes * 1e6) + _TIMES * size,
            "session": self._session,
            "work": work,
        }
        for whole in (not self._told, True):
            with Scratch() as folder:
                names = _ParentNames(self.paired, main, whole=whole)
                with Packer(Path(folder) / "given", names) as packer:
                    request = {**limits, "folder": folder, "body": packer.pack(values)}
                if whole:
                    with Packer(Path(folder) / "files", Known()) as packer:
                        request["files"] = packer.pack(_recipe(self.paired))
                answer = self._run(request, options.isolation_seconds + _SECONDS_PER_BYTE * size, names)
                if "forgotten" not in answer:
                    self._told = True
                    return _result(answer, Path(folder), names)
        raise ExecutionError("The child process does not know the files that it was given")

    def _run(self, request: dict[str, Any], seconds: float, names: _ParentNames) -> dict[str, Any]:
        try:
            called = partial(names.call, folder=Path(request["folder"]))
            return WORKER.run(request, seconds, called=called, setting="etviz.options.isolation_seconds")
        except ExecutionError as error:
            problem = (
                "This machine did not write these files, so a separate process evaluates them, and that failed: "
                f"{error.problem.rstrip('.')}. They are damaged, made to do that, or need more than "
                "etviz.options.isolation_megabytes and isolation_seconds allow; etviz.options.isolation = 'never' "
                "evaluates files in this process"
            )
            raise ExecutionError(problem, error.exit_status, error.last_lines) from None


def _flat(paired: Paired, given: Any) -> Any:
    if given is None or not paired.has_reference:
        return given
    if (calls := named_calls(given)) is not None:
        return [(name, tuple(values)) for name, values in calls]
    runs = [tuple(values) for values in paired.artifacts.inputs(given, paired.method, paired.reference()[0])]
    return runs[0] if len(runs) == 1 else runs


def _state(path: str) -> str:
    try:
        return identity(path)
    except OSError as error:
        raise ArtifactError(path, f"it can't be opened ({error.strerror})", "load it again") from error


def _recipe(paired: Paired) -> dict[str, Any]:
    artifacts = paired.artifacts
    dump, buffer = artifacts.dump, artifacts.buffer
    files = {kind: Path(path).absolute() for kind, path in artifacts.named.items()}
    if buffer is not None:
        files["debug_buffer"] = Path(buffer.path).absolute()
    if not dump.made:
        return {"files": files, "method": paired.method}
    files.pop("etdump", None)
    if paired.pairing != HANDLES:  # by handles, the instructions are those of the events
        dump = replace(dump, blocks=tuple(replace(block, profile=no_profile()) for block in dump.blocks))
    return {"files": files | {"etdump": dump}, "method": paired.method}


def _result(answer: Mapping[str, Any], folder: Path, names: _ParentNames) -> Any:
    if "raised" in answer:
        raise names.errors[answer["raised"]]
    if "failed" in answer:
        logger.debug("%s", answer["trace"])
        raise RuntimeError(answer["failed"])
    result = Unpacker(folder / "found", names).unpack(answer["found"])
    if isinstance(result, ArtifactError):
        paths = names.paired.artifacts.named.values()
        result.path = next((path for path in paths if str(Path(path).absolute()) == result.path), result.path)
    if isinstance(result, EtvizError):
        raise result
    return result


@dataclass(slots=True)
class _Main:
    foreign: Foreign
    own: OwnFunctions | None = None
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @property
    def graph(self) -> Graph:
        return self.foreign.paired.reference()[0]

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:
        return self.foreign.paired.reference()[1]

    def ask(self, function: Callable[..., Any], replay: Replay, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        asked = f"{function.__module__}:{function.__qualname__}"
        return self.foreign.ask("answer", self, [asked, replay, list(args), dict(named)])

    def piece(self, graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
        return Replay(refuse, list(executions), elsewhere=_PieceInChild(self, graph, constants))


@dataclass(slots=True)
class _PieceInChild:
    main: _Main
    graph: Graph
    constants: Mapping[str, torch.Tensor]

    def ask(self, function: Callable[..., Any], replay: Replay, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return self.main.ask(function, replay, args, named)

    def piece(self, graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
        return self.main.piece(graph, constants, executions)


class _SharedNames(Known, ABC):
    def __init__(self, paired: Paired) -> None:
        self.paired = paired
        self._objects = [paired.constants, *_parts(paired.graph), *(_parts(paired.edge) if paired.edge else ())]
        self._blocks = {id(block): at for at, block in enumerate(paired.artifacts.dump.blocks)}
        self._numbers = {id(shared): number for number, shared in enumerate(self._objects)}

    def name(self, value: Any, packer: Packer) -> Json | None:
        number = self._numbers.get(id(value))
        if number is not None:
            return ["object", number]
        if isinstance(value, Keeper):
            return ["keeper"]
        if isinstance(value, Aligned) and value.inner is self.paired.constants:
            return ["aligned"]
        if isinstance(value, Replay):
            return self.name_replay(value, packer)
        if isinstance(value, RuntimeLog):
            return ["log", self._blocks[id(value.block)]]
        if isinstance(value, CustomMetrics) or (callable(value) and not isinstance(value, type)):
            return self.name_function(value)
        return self._place(value)

    def _place(self, value: Any) -> Json | None:
        buffer = self.paired.artifacts.buffer
        place = buffer.place(value) if buffer is not None and hasattr(value, "data_ptr") else None
        if place is None or not value.numel():
            return None
        return ["logged", str(value.dtype).removeprefix("torch."), list(value.shape), list(value.stride()), place]

    @abstractmethod
    def name_replay(self, replay: Replay, packer: Packer) -> Json: ...

    @abstractmethod
    def name_function(self, function: Any) -> Json: ...

    def find(self, name: Json, unpacker: Unpacker) -> Any:
        kind, *rest = name
        return getattr(self, f"find_{kind}")(unpacker, *rest)

    def find_object(self, _: Unpacker, number: int) -> Any:
        return self._objects[number]

    def find_log(self, _: Unpacker, at: int) -> RuntimeLog:
        return RuntimeLog(self.paired.artifacts.dump.blocks[at], self.paired.artifacts.buffer, self._written)

    @cached_property
    def _written(self) -> Any:
        return seen_later(self.paired.graph)

    def find_keeper(self, _: Unpacker) -> Keeper:
        return Keeper()

    def find_aligned(self, _: Unpacker) -> Aligned:
        return Aligned(self.paired.constants or {})

    def find_logged(self, _: Unpacker, dtype: str, shape: list[int], strides: list[int], place: int) -> torch.Tensor:
        buffer = self.paired.artifacts.buffer
        if buffer is None:
            raise LookupError("there is no debug buffer")
        return buffer.view(getattr(torch, dtype), shape, strides, place)


def _parts(graph: Graph) -> list[Any]:
    inner = (part for subgraph in graph.subgraphs.values() for part in _parts(subgraph))
    return [graph, *graph.nodes, *inner]


class _ParentNames(_SharedNames):
    def __init__(self, paired: Paired, main: _Main, *, whole: bool) -> None:
        super().__init__(paired)
        self._main, self._whole = main, whole
        self._functions: list[Any] = []
        self.errors: list[Exception] = []

    def name_function(self, function: Any) -> Json:
        self._functions.append(function)
        is_metrics = isinstance(function, CustomMetrics)
        return ["metrics" if is_metrics else "function", len(self._functions) - 1, *getattr(function, "names", ())]

    def name_replay(self, replay: Replay, packer: Packer) -> Json:
        elsewhere = replay.elsewhere
        if isinstance(elsewhere, _Main):
            whole = self._whole or elsewhere.own is not None
            told = [packer.pack(elsewhere.own), _pack_all(packer, replay)] if whole else []
            return ["replay", elsewhere.number, *told]
        if not isinstance(elsewhere, _PieceInChild):
            raise TypeError("these executions are evaluated in this process")
        return ["piece", *map(packer.pack, (elsewhere.graph, elsewhere.constants)), _pack_all(packer, replay)]

    def find_function(self, _: Unpacker, number: int, *names: str) -> Any:
        return self._functions[number]

    find_metrics = find_function

    def find_replay(self, unpacker: Unpacker, executions: Json, has_float: bool, stages: Sequence[str]) -> Replay:
        known = [Execution(inputs, log) for log, inputs in unpacker.unpack(executions)]
        return Replay(refuse, known, refuse if has_float else None, dict.fromkeys(stages, refuse), self._main)

    def find_piece(self, unpacker: Unpacker, graph: Json, constants: Json, executions: Json) -> Replay:
        piece_graph, weights = unpacker.unpack(graph), unpacker.unpack(constants)
        return self._main.piece(piece_graph, weights, [Execution(*item) for item in unpacker.unpack(executions)])

    def call(self, call: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        path = folder / call["file"]
        args, named = Unpacker(path, self).unpack(call["body"])
        path.unlink(missing_ok=True)
        function = self._functions[call["number"]]
        function = function.measure if isinstance(function, CustomMetrics) else function
        try:
            value = _with_gradients(function, args, named, call["wanted"])
            none = value is NotImplemented
            with Packer(path, self) as packer:
                return {"value": None if none else packer.pack(value), "none": none}
        except Exception as error:  # noqa: BLE001 - it is raised again if the child does not catch it there
            self.errors.append(error)
            return {"raised": len(self.errors) - 1, "kind": type(error).__name__, "text": str(error)}


def _with_gradients(function: Callable[..., Any], args: list[Any], named: dict[str, Any], wanted: list[int]) -> Any:
    if not wanted:
        return function(*args, **named)
    tensors = _tensors([args, named])
    leaves = [tensors[at].requires_grad_() for at in wanted]
    with torch.enable_grad():
        value = function(*args, **named)
        if not isinstance(value, torch.Tensor) or not value.requires_grad or value.numel() != 1:
            return value, None
        return value, list(torch.autograd.grad(value.sum(), leaves, materialize_grads=True))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple, dict)):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in _tensors(item)]
    return [value] if hasattr(value, "requires_grad") else []


def _pack_all(packer: Packer, replay: Replay) -> Json:
    return packer.pack([(list(execution.inputs), execution.log) for execution in replay.executions])


# ---- the child ----


class _RaisedThereError(Exception):
    number = -1


class _ParentFunction:
    def __init__(self, names: _ChildNames, number: int) -> None:
        self.names, self.number = names, number

    def __call__(self, *args: Any, **named: Any) -> Any:
        leaves = _tensors([list(args), named])
        wanted = [at for at, leaf in enumerate(leaves) if leaf.requires_grad] if torch.is_grad_enabled() else []
        value = self.names.call(self.number, args, named, wanted)
        if not wanted:
            return value
        result, gradients = value

        class Scalar(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *_: torch.Tensor) -> torch.Tensor:
                return result.detach()

            @staticmethod
            def backward(ctx: Any, *outer: torch.Tensor) -> Any:
                return tuple(outer[0] * inner for inner in gradients)

        return result if gradients is None else Scalar.apply(*(leaves[at] for at in wanted))


class _ParentMetrics(CustomMetrics):
    def __init__(self, function: _ParentFunction, names: Sequence[str]) -> None:
        super().__init__()
        self.function, self.names = function, tuple(names)

    def measure(
        self, reference: torch.Tensor, runtime: torch.Tensor, handles: Sequence[int] = ()
    ) -> tuple[dict[str, float], list[str]]:
        return self.function(reference, runtime, tuple(handles)) if self.names else ({}, [])


@dataclass(slots=True)
class _OpenFiles:
    paired: Paired
    replays: dict[int, Replay] = field(default_factory=dict)


_SESSIONS: Final[dict[str, _OpenFiles]] = {}


class _ChildNames(_SharedNames):
    def __init__(self, session: _OpenFiles, folder: Path, line: Line) -> None:
        super().__init__(session.paired)
        self._session, self._folder, self._line = session, folder, line
        self._calls = itertools.count()

    def name_function(self, function: Any) -> Json:
        plain = function.function if isinstance(function, _ParentMetrics) else function
        if not isinstance(plain, _ParentFunction):
            raise TypeError(f"{function!r} can't be handed to another process")
        return ["function", plain.number]

    def name_replay(self, replay: Replay, packer: Packer) -> Json:
        if not any(replay is known for known in self._session.replays.values()):
            return ["piece", packer.pack(replay.graph), packer.pack(replay.constants), _pack_all(packer, replay)]
        executions = [(execution.log, list(execution.inputs)) for execution in replay.executions]
        return ["replay", packer.pack(executions), replay.fresh_float is not None, list(replay.stages)]

    def keep(self, number: int, replay: Replay) -> None:
        self._session.replays[number] = replay

    def find_function(self, _: Unpacker, number: int) -> _ParentFunction:
        return _ParentFunction(self, number)

    def find_metrics(self, _: Unpacker, number: int, *names: str) -> CustomMetrics:
        return _ParentMetrics(_ParentFunction(self, number), names)

    def find_replay(self, unpacker: Unpacker, number: int, *told: Json) -> Replay:
        if told:
            functions, executions = map(unpacker.unpack, told)
            self._session.replays[number] = _replay_of(replace(self.paired, own_operators=functions), executions)
        if number not in self._session.replays:
            raise _ForgottenError
        return self._session.replays[number]

    def find_piece(self, unpacker: Unpacker, graph: Json, constants: Json, executions: Json) -> Replay:
        piece_graph, weights = unpacker.unpack(graph), unpacker.unpack(constants)
        return piece(piece_graph, weights, [Execution(*execution) for execution in unpacker.unpack(executions)])

    def call(self, number: int, args: Sequence[Any], named: Mapping[str, Any], wanted: Sequence[int]) -> Any:
        name = f"call-{next(self._calls)}"
        with Packer(self._folder / name, self) as packer:
            body = packer.pack([list(args), dict(named)])
        reply = self._line.ask({"number": number, "body": body, "file": name, "wanted": list(wanted)})
        if "raised" in reply:
            error = type(reply["kind"], (_RaisedThereError,), {})(reply["text"])
            error.number = reply["raised"]
            raise error
        value = Unpacker(self._folder / name, self).unpack(reply["value"])
        return NotImplemented if reply["none"] else value


class _ForgottenError(Exception):
    """The child does not have, or no longer has, what a request is about."""


def _replay_of(paired: Paired, executions: Sequence[tuple[Sequence[Any], Log]]) -> Replay:
    paired = paired.with_forgotten_state()
    logs = [Execution(*execution) for execution in executions]
    return Replay(paired.evaluator, logs, paired.float_evaluator if paired.has_float else None, paired.stages)


def main(connection: int, parent: int) -> None:
    os.environ["TQDM_DISABLE"] = "1"  # the parent shows what an error says last
    options.isolation = options.look_inside = "never"
    serve(connection, parent, ("torch", "etviz.loading.load"), {"compare": _work, "answer": _work})


def _work(request: dict[str, Any], line: Line) -> dict[str, Any]:
    folder = Path(request["folder"])
    try:
        with spared_memory(request["most"]):
            names = _ChildNames(_session(request, folder), folder, line)
            answer = _answers(request, names, Unpacker(folder / "given", names).unpack(request["body"]))
            return _packed(answer, names, folder)
    except _ForgottenError:
        return {"forgotten": True}
    except _RaisedThereError as error:
        return {"raised": error.number}
    except EtvizError as error:
        return _packed(error, Known(), folder)
    except MemoryError:
        problem = f"This takes more than {request['most']:,} bytes of memory, which is more than the files justify"
        return _packed(ExecutionError(problem), Known(), folder)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        return {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}


def _packed(value: Any, names: Known, folder: Path) -> dict[str, Any]:
    with Packer(folder / "found", names) as packer:
        return {"found": packer.pack(value)}


def _session(request: Mapping[str, Any], folder: Path) -> _OpenFiles:
    key = request["session"]
    if key not in _SESSIONS:
        if "files" not in request:
            raise _ForgottenError
        told = Unpacker(folder / "files", Known()).unpack(request["files"])
        paired = pair(ArtifactSet.open(**told["files"], checked=False), told["method"])
        constants = paired.reference()[1] if paired.has_reference else {}
        _SESSIONS[key] = _OpenFiles(replace(paired, constants=constants))
        for old in list(_SESSIONS)[:-_KEPT]:
            del _SESSIONS[old]
    _SESSIONS[key] = _SESSIONS.pop(key)
    return _SESSIONS[key]


def _answers(request: Mapping[str, Any], names: _ChildNames, body: list[Any]) -> Any:
    if request["work"] == "compare":
        given, functions, custom, how, number = body
        compared = compare_executions(replace(names.paired, own_operators=functions), given, custom=custom, **how)
        if compared.replay is not None:
            names.keep(number, compared.replay)
        return compared, dict(functions.problems) if functions is not None else {}
    asked, replay, args, named = body
    module, _, name = asked.partition(":")
    function = getattr(importlib.import_module(module), name)
    if not getattr(function, QUESTION, False):
        raise TypeError(f"{asked} is no question")
    given = inspect.signature(function).bind(replay, *args, **named)
    if (progress := given.arguments.get("progress")) is not None:
        given.arguments["progress"] = _seldom(progress)
    return function(*given.args, **given.kwargs)


def _seldom(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    told = -math.inf

    def tell(done: int, total: int) -> None:
        nonlocal told
        if done == total or time.monotonic() - told > _OFTEN:
            progress(done, total)
            told = time.monotonic()

    return tell
