"""`record_calls`: keeps the inputs of every call that an app makes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

from torch.utils import _pytree as pytree

from etviz.artifacts.call_file import LIMIT, Writer
from etviz.errors import UsageError, checked
from etviz.upstream.callers import callers, method_name

if TYPE_CHECKING:
    from pathlib import Path

    from etviz.artifacts.files import PathLike

_TEXTS: Final = 1000


class Recorder:
    """Writes the calls of one recording; `calls` counts them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: list[Any] = []
        self._last: Any = None
        self._method = "forward"
        self.calls = 0

    @property
    def path(self) -> Path:
        return self._writer.path

    def call(self, inputs: Any, method: str = "forward") -> None:
        """Record a call that etviz does not see, as of a runner of your own; nested `inputs` are flattened."""
        self._writer.call(method, pytree.tree_leaves(inputs))
        self.calls += 1

    def reset(self, why: str = "reset") -> None:
        self._writer.reset(why)

    def seen(self, caller: Any, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._same_program(caller)
        if function == "reset":
            return self.reset()
        if function in ("generate", "prefill"):
            prompt = args[0] if args else kwargs.get("prompt", kwargs.get("inputs", ""))
            return self._writer.note(f"{function}: {str(prompt)[:_TEXTS]}")
        if function == "plan_execute":
            return self._writer.note("plan_execute: inputs that were set before")
        if function == "run_method":
            name, *rest = [*args, *(kwargs[key] for key in ("method_name", "inputs") if key in kwargs)]
            return self.call(rest[0] if rest else (), name)
        inputs = args[0] if args else kwargs.get("inputs", ())
        return self.call(inputs, self._method)

    def _same_program(self, caller: Any) -> None:
        if caller is self._last:
            return
        number = next((at for at, known in enumerate(self._known) if known is caller), None)
        if number is None:
            self._known.append(caller)
            self.reset(f"program {len(self._known) - 1} was loaded")
        else:
            self._writer.note(f"program {number}")
        self._last = caller
        self._method = method_name(caller) if hasattr(caller, "set_inputs") else "forward"


@contextmanager
@checked
def record_calls(folder: PathLike, *, limit: int = LIMIT) -> Generator[Recorder]:
    """Record the inputs of every call of a program, while a block runs.

    Seen are the methods of `executorch.runtime`, modules of the bindings, and the prompts and resets of
    `TextLLMRunner`, if its module is imported before. `Recorder.call` adds others.

    Parameters
    ----------
    folder
        Where ``calls.bin`` is written; an earlier one is replaced. Its format stands in `etviz.artifacts.call_file`.
    limit
        Maximum number of bytes; the calls after that are not recorded.

    Raises
    ------
    ArtifactError
        If the file can't be written.
    UsageError
        If `limit` is not positive.

    Examples
    --------
    >>> with etviz.record_calls("calls") as recorder:  # doctest: +SKIP
    ...     answer = app.chat("Hello")
    >>> etviz.lint_calls("calls", program="model.pte")  # doctest: +SKIP
    """
    if limit <= 0:
        raise UsageError(f"limit must be a positive number of bytes, found {limit}")
    writer = Writer(folder, limit)
    recorder = Recorder(writer)
    with ExitStack() as stack:
        stack.callback(writer.close)
        for kind, name in list(callers()):
            plain = getattr(kind, name)
            setattr(kind, name, _recording(plain, partial(recorder.seen), name))
            stack.callback(setattr, kind, name, plain)
        yield recorder


def _recording(plain: Callable[..., Any], seen: Callable[..., None], name: str) -> Callable[..., Any]:
    @wraps(plain)
    def call(caller: Any, *args: Any, **kwargs: Any) -> Any:
        seen(caller, name, args, kwargs)
        return plain(caller, *args, **kwargs)

    return call
