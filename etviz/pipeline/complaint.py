"""Turns upstream's message, often a page per branch, into a few lines."""

from __future__ import annotations

import re
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from etviz.graph.labels import cell_name, is_foreign, source_code, source_line, with_cells

if TYPE_CHECKING:
    from torch.fx import Node

_LONG: Final = 300
_FEW: Final = 3
_CAUSE: Final = 200
_CODE: Final = 100
_OURS: Final = str(Path(__file__).parent.parent)
_STANDARD: Final = sysconfig.get_path("stdlib")
_BRANCH: Final = (
    "the way that is taken may not depend on a tensor's value: have both in the program, with torch.cond(condition, "
    "one, other, arguments), or choose values with torch.where"
)
_NUMBER: Final = (
    "a number that is taken out of a tensor (.item(), int(), a loop over it) is not known at export: keep it a tensor, "
    "make it an argument or an attribute of the model, or give its bounds with torch._check()"
)
_ADVICE: Final[Sequence[tuple[str, str]]] = (
    (
        r"(?P<op>\w+::\w+): attempted to run this operator with Meta tensors",
        'tell torch what it gives: @torch.library.register_fake("{op}") before a function of the same arguments that '
        "returns an empty tensor of that shape and dtype",
    ),
    (
        r"Missing out variants: (?P<op>.*)",
        "the runtime calls kernels that write into their last argument: register one for each, or write it with "
        "operators of torch",
    ),
    (
        r"not in Core ATen opset",
        "write it with other operators; or lower the model with EdgeCompileConfig(_core_aten_ops_exception_list=[…]) "
        "for a backend or a kernel that has it, and give etviz.load what comes out",
    ),
    (
        r"Constant (?P<op>\S+) is mutated",
        'a call overwrites {op}, so the model must have it as a buffer: self.register_buffer("name", tensor), and '
        "self.name in forward()",
    ),
    (r"Data-dependent branching|Could not guard on data-dependent", _BRANCH),
    (r"data-dependent", _NUMBER),
)
"""By pattern in upstream's text, the first that fits."""
_WHOLE: Final = "The whole message is the error's __cause__"


def complaint(error: Exception, advice: str = "") -> str:
    whole = str(error).strip() or type(error).__name__
    said = _beginning(whole)
    inner = _innermost(error)
    if inner and inner not in whole:
        said = f"{said.rstrip('.')}. Its cause: {inner}"
    advice = _advice(error) or advice
    lines = [f"Where: {line}" for line in _places(error)]
    lines += [f"What to do: {advice}."] if advice else []
    lines += [f"{_WHOLE}."] if len(said) < len(whole) else []
    return "\n".join([said, *(f"  {line}" for line in lines)])


def place(error: BaseException) -> str:
    frames = _own(traceback.extract_tb(error.__traceback__))
    return _at(frames[-1]) if frames else ""


def _beginning(text: str) -> str:
    paragraph, *after = re.split(r"\n\s*\n", text)
    first, *others = paragraph.splitlines()
    if not others and after and first.endswith(":"):  # it announces what follows
        return f"{first}\n{_beginning(after[0].strip().splitlines()[0])}"
    if others and (explained := re.match(r"\s+Explanation: *(.*)", others[0])):
        others = others[:1] if explained[1] else []
    elif len(others) >= _FEW or len(paragraph) > _LONG:
        others = []
    first = re.sub(r"\s*\(unhinted: .*", ".", first)  # symbols of upstream's own
    return "\n".join(line if len(line) <= _LONG else f"{line[:_LONG].rstrip()} …" for line in (first, *others))


def _advice(error: BaseException) -> str:
    text = "\n".join(map(str, _chain(error)))
    for pattern, advice in _ADVICE:
        if match := re.search(pattern, text):
            return advice.format(**match.groupdict())
    return ""


def _places(error: BaseException) -> list[str]:
    frames = _own([*(getattr(error, "real_stack", None) or []), *traceback.extract_tb(error.__traceback__)])
    nearest = [frame for frame in frames if "site-packages" not in frame.filename]
    if frames:
        lines = (_with_code(_at(frame), frame.line or "") for frame in (*nearest[-1:], frames[-1]))
        return list(dict.fromkeys(lines))
    for node in _operators(error):
        stack = with_cells(node.stack_trace or "")
        if line := source_line(stack):
            name = getattr(node.target, "__name__", str(node.target))
            return [f"{_with_code(line, source_code(stack))}, which calls {name}"]
    return []


def _at(frame: traceback.FrameSummary) -> str:
    return f"{cell_name(frame.filename) or PurePath(frame.filename).name}:{frame.lineno}"


def _with_code(line: str, code: str) -> str:
    return f"{line}: {textwrap.shorten(code, _CODE, placeholder=' …')}" if code else line


def _own(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in frames
        if Path(frame.filename).is_absolute()
        and not is_foreign(frame.filename)
        and not frame.filename.startswith(_OURS)
        and ("site-packages" in frame.filename or not frame.filename.startswith(_STANDARD))
    ]


def _operators(error: BaseException) -> Iterator[Node]:
    from torch.fx import GraphModule, Node

    frames = [frame for one in _chain(error) for frame, _ in traceback.walk_tb(one.__traceback__)][::-1]
    for frame in frames:
        for name in ("node", "n"):
            node = frame.f_locals.get(name)
            if isinstance(node, Node) and node.op == "call_function":
                yield node
    for frame in frames:
        graph = frame.f_locals.get("graph_module")
        for node in graph.graph.nodes if isinstance(graph, GraphModule) else ():
            schema = getattr(node.target, "_schema", None)
            if schema is not None and re.search(rf"\b{re.escape(schema.name)}\b", str(error)):
                yield node


def _innermost(error: BaseException) -> str:
    *_, first = _chain(error)
    lines = str(first).strip().splitlines()
    return (
        f"{type(first).__name__}: {textwrap.shorten(lines[0], _CAUSE, placeholder=' …')}"
        if first is not error and lines
        else ""
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
