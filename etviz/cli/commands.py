"""All commands; errors become one line on stderr and an exit status."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterable
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from etviz import __version__
from etviz.cli import INTERRUPTED
from etviz.cli.artifacts import expanded, file_options
from etviz.cli.console import err, out, with_options
from etviz.errors import EtvizError, UnexpectedError
from etviz.pipeline.worker import PATIENT_THREADS
from etviz.settings import options
from etviz.text import one_line
from etviz.upstream.executorch import quietly

_verbose = False
_NO_READER: Final = 141

_ALIASES: Final = {"kl-divergence-base": "reference"}
"""Names that other tools (llama.cpp) have for our options."""
_Misuse: Final = typer.BadParameter.__mro__[1]
"""Click's `UsageError`, which typer brings along under changing names."""


class _Once(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            single = [
                p for p in order if p.param_type_name == "option" and not (p.multiple or getattr(p, "count", False))
            ]
            for parameter in single:
                if single.count(parameter) > 1:
                    ctx.fail(f"{parameter.opts[0]} is given {single.count(parameter)} times; give it once")
        return super().parse_args(ctx, args)


def _version(value: bool) -> None:
    if value:
        out.print(__version__)
        raise typer.Exit


def _options(
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the whole trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    global _verbose
    _verbose = verbose
    options.look_inside = "never"  # a command shows one result and ends


_COMMANDS: Final = {
    "demo": ("Look", "demo.demo", "etviz demo --out digits --open"),
    "info": ("Look", "info.info", "etviz info etviz-demo"),
    "gaps": ("Look", "gaps.gaps", "etviz gaps etviz-demo --by sqnr_db --top 20 --format csv"),
    "outputs": ("Look", "outputs.outputs", "etviz outputs etviz-demo --plot outputs.png"),
    "dump": ("Look", "dump.dump", "etviz dump etviz-demo -o tensors"),
    "why": ("Look", "why.why", "etviz why etviz-demo --json"),
    "report": ("Look", "report.report", "etviz report etviz-demo -o report.html --tensors worst"),
    "decode": (
        "Look",
        "decode.decode",
        "etviz decode model.pte --tokenizer tokenizer.json --prompt 'Once upon a time'",
    ),
    "compare": ("Look", "compare.compare", "etviz compare fp32 int8 -o compared.html"),
    "mcp": ("Look", "agent.mcp", "etviz mcp build/ (needs etviz\\[mcp])"),
    "check": (
        "Gate",
        "check.check",
        "etviz check build/ --max-rmse 1e-3 --junit numerics.xml. Limits for some operators only, in etviz.toml (or "
        "as tool.etviz.check in pyproject.toml): \\[check] max_rmse = 1e-3; \\[\\[check.rules]] operator = '*conv*', "
        "dtype = 'int8', max_rmse = 0.5.",
    ),
    "verify": ("Gate", "verify.verify", "etviz verify model.bpte --rtol 1e-3 --atol 1e-5"),
    "calls": ("Gate", "calls.calls", "etviz calls recorded --pte model.pte"),
    "run": ("Run", "run.run", "etviz run model.pte --runner examples/cpp_runner/build/etviz_runner"),
    "probe": ("Run", "probe.probe", "etviz probe etviz-demo -o probes --budget 16MB"),
    "load-outputs": ("Run", "probe.load_outputs", "etviz load-outputs outputs --record probes"),
}


def make_app(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """Imports what the named commands need."""
    app = typer.Typer(
        help="Which operator broke a model's numerics on its way to ExecuTorch, and why.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={
            "help_option_names": ["-h", "--help"],
            "token_normalize_func": lambda name: _ALIASES.get(name, name),
        },
        epilog="Example: [bold]etviz demo[/bold], then [bold]etviz gaps etviz-demo --top 5[/bold]. "
        "Exit status: 0 fine, 1 a check failed, 2 bad usage or a bad artifact.",
    )
    app.callback()(_options)
    for name in names:
        heading, place, example = _COMMANDS[name]
        module, function = place.split(".")
        command = getattr(importlib.import_module(f"etviz.cli.{module}"), function)
        parameters = inspect.signature(command).parameters
        if "artifacts" in parameters:
            command = expanded(command, "artifacts", file_options)
        if "tokens" in parameters:
            from etviz.cli.decode import token_options

            command = expanded(command, "tokens", token_options)
        if "limits" in parameters:
            from etviz.cli.check import limit_flags, limit_options

            command = expanded(command, "limits", limit_options, limit_flags())
        app.command(name, cls=_Once, rich_help_panel=heading, epilog=f"Example: {example}")(command)
    return app


def _fail(text: str) -> NoReturn:
    err.print(f"etviz: {with_options(text)}", style="red", soft_wrap=True, markup=False)
    sys.exit(2)


def main() -> NoReturn:
    for name, value in PATIENT_THREADS.items():
        os.environ.setdefault(name, value)
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    # A --verbose after the command's name is as good as one before it.
    arguments = sys.argv[1:]
    if "--verbose" in arguments:
        arguments = ["--verbose", *(a for a in arguments if a != "--verbose")]
    atexit.register(gc.freeze)  # else the interpreter walks through all objects before it ends
    status = _status(arguments)
    if status == INTERRUPTED:
        err.print("etviz: interrupted")
    sys.exit(status)


def _without_reader() -> NoReturn:
    sys.stderr.close()
    sys.exit(_NO_READER)


def _status(arguments: list[str]) -> int | None:
    try:
        with contextlib.nullcontext() if "--verbose" in arguments else quietly():
            named = [name for name in arguments if name != "--verbose"][:1]
            app = make_app(named if named and named[0] in _COMMANDS else _COMMANDS)
            gc.freeze()  # what was imported stays: to the oldest generation
            gc.unfreeze()
            gc.enable()
            return app(arguments, prog_name="etviz", standalone_mode=False)
    except EtvizError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            _without_reader()
        if _verbose:
            traceback.print_exc()
        hint = " --verbose shows the trace." if isinstance(error, UnexpectedError) and not _verbose else ""
        _fail(one_line(error) + hint)
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 1:  # completion is shown
            raise
        _without_reader()  # typer and rich make a status 1 of it
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the exit status 1 means that a check failed
        if _verbose:
            traceback.print_exc()
        if isinstance(error, _Misuse):
            _misused(error)
        _fail(f"unexpected {type(error).__name__}: {one_line(error)[:500]} (--verbose shows the trace)")


def _misused(error: Any) -> NoReturn:
    text = one_line(error.format_message())
    if not text:
        sys.exit(2)
    command = error.ctx.command_path if error.ctx is not None else "etviz"
    _fail(f"{text if text.endswith(('.', '?')) else text + '.'} {command} --help shows how to call it.")
