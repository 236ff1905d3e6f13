"""`etviz check`: a gate for continuous integration."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from etviz.artifacts.files import write_file
from etviz.cli import artifacts as given
from etviz.cli.console import err, out, plain_text, print_json, with_options
from etviz.cli.decode import PromptText
from etviz.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etviz.gate import CheckResult, Rules

_SHOWN: Final = 20
_NO_SUMMARY: Final = "unset GITHUB_STEP_SUMMARY, or let it name a file"

Limits = dict[str, float]
_MOST: Final = ("max_rmse", "max_abs", "max_mse", "max_rel_l2", "max_severity", "max_introduced_severity")
_LEAST: Final = ("min_sqnr_db", "min_cosine", "min_allclose")


def check(
    artifacts: given.Artifacts,
    limits: Limits,
    tokens: PromptText,
    min_compared: Annotated[float | None, typer.Option(help="Least share of compared instructions, 0 to 1.")] = None,
    outputs: Annotated[
        bool | None, typer.Option("--outputs/--no-outputs", help="Final outputs must match their reference.")
    ] = None,
    operators: Annotated[
        bool | None, typer.Option("--operators/--no-operators", help="No operator or weight may be at fault.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with the rules.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Fail on what became worse than this.")] = None,
    factor: Annotated[float | None, typer.Option(help="How many times worse than the baseline.")] = None,
    write_baseline: Annotated[Path | None, typer.Option(help="Store this run's numbers as a baseline.")] = None,
    device: Annotated[
        str, typer.Option(help="Class of devices: store its bits in the baseline, or compare with them.")
    ] = "",
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON; '-' prints it.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary for pull requests.")] = None,
) -> None:
    """Fail (exit status 1) if an output differs, an operator is at fault, or a row is beyond a limit or a baseline."""
    start = time.perf_counter()
    options = {"outputs": outputs, "operators": operators, "min_compared": min_compared, "factor": factor}
    rules = _rules(config, artifacts.source).with_flags(limits, **options)
    if tokens.given and artifacts.source.suffix == ".pte":
        result = _tokens(artifacts.source, artifacts, tokens)
    else:
        result = _check(artifacts, rules, baseline, write_baseline, device)
        if tokens.given:
            of_tokens = _tokens(artifacts.pte, artifacts, tokens)
            result.cases += of_tokens.cases
            result.notes += [of_tokens.verdict, *of_tokens.notes]
    _write(result, junit, json_file, markdown, time.perf_counter() - start)
    if json_file is None or str(json_file) != "-":
        _print(result, quiet=rules.demand_nothing and baseline is None and not tokens.given)
    if not result.passed:
        raise typer.Exit(1)


def _tokens(program: Path | None, artifacts: given.Artifacts, tokens: PromptText) -> CheckResult:
    from etviz.decoding.gate import check_tokens

    if program is None:
        raise UsageError("limits of tokens need the program; give --pte")
    return check_tokens(tokens.decode(program, artifacts.method), tokens.limits)


def _check(
    artifacts: given.Artifacts, rules: Rules, baseline: Path | None, written: Path | None, device: str
) -> CheckResult:
    from etviz.gate import check as run_check
    from etviz.gate.baseline import read_baseline, write_baseline

    if device and baseline is None and written is None:
        raise UsageError("--device needs --baseline, which holds the bits of its class, or --write-baseline")
    before = read_baseline(baseline) if baseline is not None else None
    inspections = artifacts.load_all()
    (name, inspection), *others = inspections.items()
    if others and (before is not None or written is not None):
        raise UsageError(f"a baseline holds one of {', '.join(inspections)}; choose it with --method")
    result = run_check(inspection.analysis, rules, before, device if baseline is not None else "")
    if written is not None:
        stored = read_baseline(written) if written.is_file() and device else None
        write_baseline(inspection.analysis, written, device, stored)
    if others:
        results = {name: result} | {other: run_check(found.analysis, rules) for other, found in others}
        return _together(artifacts.source.name, results)
    return result


def _together(title: str, results: Mapping[str, CheckResult]) -> CheckResult:
    """The results of several methods or programs, whose names come before those of their cases."""
    from etviz.gate import CheckResult

    return CheckResult(
        title,
        " ".join(f"{name}: {result.verdict}" for name, result in results.items()),
        [replace(case, name=f"{name}: {case.name}") for name, result in results.items() for case in result.cases],
        [f"{name}: {note}" for name, result in results.items() for note in result.notes],
    )


def _rules(config: Path | None, source: Path) -> Rules:
    from etviz.gate.rules import Rules, find_rules, read_rules

    if config is not None:
        return read_rules(config)
    judged = source if source.is_dir() else source.parent
    path, beside = find_rules(Path.cwd(), judged), find_rules(judged)
    if beside is not None and beside.parent == judged.resolve():
        if path is None and Path.cwd() == judged.resolve():
            raise UsageError(f"{beside} lies beside the artifacts that it would judge; name it with --config")
        err.print(plain_text(f"{beside} lies beside the artifacts and is not followed"))
    return read_rules(path) if path is not None else Rules()


def limit_options(
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME=NUMBER", help="Any other: max_/min_ and a metric.", rich_help_panel="Limits"
        ),
    ] = None,
    **flags: float | None,
) -> Limits:
    given = {name: value for name, value in flags.items() if value is not None}
    for text in limits or []:
        name, number = (part.strip() for part in text.partition("=")[::2])
        if name in given:
            raise UsageError(f"the limit {name} is given twice; give it once")
        try:
            given[name] = float(number)
        except ValueError:
            raise UsageError(f"--limit must be NAME=NUMBER, found {text!r}; for example --limit max_ulp=16") from None
    return given


def limit_flags() -> dict[str, Any]:
    most, least = "Largest value that passes.", "Smallest value that passes."
    texts = dict.fromkeys(_MOST, most) | dict.fromkeys(_LEAST, least)
    return {
        name: Annotated[
            float | None,
            typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=False, rich_help_panel="Limits"),
        ]
        for name, text in texts.items()
    }


def _write(
    result: CheckResult, junit: Path | None, json_file: Path | None, markdown: Path | None, seconds: float
) -> None:
    from etviz.gate.formats import to_json, to_markdown, write_json, write_junit

    if junit is not None:
        write_junit(result, junit, seconds)
    if json_file is not None and str(json_file) == "-":
        print_json(to_json(result))
    elif json_file is not None:
        write_json(result, json_file)
    if markdown is not None:
        write_file(markdown, "the summary", to_markdown(result))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(to_markdown(result))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArtifactError(summary, f"the summary can't be written ({reason})", _NO_SUMMARY) from error


def _print(result: CheckResult, *, quiet: bool) -> None:
    out.print(plain_text(with_options(result.verdict)))
    for case in result.failures[:_SHOWN]:
        wrong = "; ".join(violation.text for violation in case.violations)
        source = f" [dim]{plain_text(case.source)}[/dim]" if case.source else ""
        out.print(f"[red]FAILED[/red] {plain_text(case.name)}: {plain_text(wrong)}{source}")
    more = len(result.failures) - _SHOWN
    if more > 0:
        out.print(f"… and {more} more")
    for note in result.notes:
        out.print(f"[yellow]![/yellow] {plain_text(with_options(note))}")
    count = len(result.failures)
    if count:
        out.print(f"[bold red]{count} of {len(result.cases)} checks failed[/bold red]")
    else:
        out.print(f"[bold green]{len(result.cases)} checks passed[/bold green]")
    if quiet:
        err.print(
            "no limits were given: only outputs, operators and non-finite values were checked; see etviz check --help",
        )
