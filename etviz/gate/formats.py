"""The result of a check as JUnit XML, JSON and Markdown."""

from __future__ import annotations

import json
import math
import re
import time
import xml.etree.ElementTree as ET
from typing import Any, Final

from etviz.artifacts.files import PathLike, whole_file, write_file
from etviz.gate.checking import Case, CheckResult
from etviz.json_numbers import or_none
from etviz.text import markdown, printable

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN: Final = 20


def write_junit(result: CheckResult, path: PathLike, seconds: float = 0.0) -> None:
    counts = {"tests": len(result.cases), "failures": len(result.failures), "errors": 0, "skipped": 0}
    about = {name: str(value) for name, value in counts.items()} | {"time": f"{seconds:.3f}"}
    suites = ET.Element("testsuites", {"name": "etviz check", **about})
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    suite = ET.SubElement(suites, "testsuite", {"name": _xml(result.title), **about, "timestamp": stamp})
    for case in result.cases:
        about = {"name": _xml(case.name), "classname": _xml(f"etviz.{case.group}"), "time": "0.000"}
        element = ET.SubElement(suite, "testcase", about)
        if not case.passed:
            message = "; ".join(violation.text for violation in case.violations)
            failure = ET.SubElement(element, "failure", {"message": _xml(message), "type": case.violations[0].demand})
            failure.text = _xml("\n".join(filter(None, (message, case.source, _numbers(case)))))
    ET.indent(suites)
    with whole_file(path, "the JUnit file") as partial:
        ET.ElementTree(suites).write(partial, encoding="utf-8", xml_declaration=True)


def to_json(result: CheckResult) -> dict[str, Any]:
    return {
        "format": "etviz-check",
        "version": 1,
        "title": result.title,
        "passed": result.passed,
        "verdict": result.verdict,
        "checks": len(result.cases),
        "failures": [_case_json(case) for case in result.failures],
        "notes": list(result.notes),
    }


def write_json(result: CheckResult, path: PathLike) -> None:
    write_file(path, "the JSON file", json.dumps(to_json(result), indent=1, allow_nan=False) + "\n")


def to_markdown(result: CheckResult) -> str:
    failures = result.failures
    mark = "❌" if failures else "✅"
    lines = [f"### {mark} etviz check: {markdown(result.title)}", "", markdown(result.verdict), ""]
    if failures:
        lines += ["| operator | what is wrong | source |", "| --- | --- | --- |"]
        for case in failures[:_SHOWN]:
            wrong = "; ".join(violation.text for violation in case.violations)
            lines.append(f"| {markdown(case.name)} | {markdown(wrong)} | {markdown(case.source)} |")
        if len(failures) > _SHOWN:
            lines.append(f"| … | {len(failures) - _SHOWN} more | |")
        lines.append("")
    lines.append(f"{len(result.cases) - len(failures)} of {len(result.cases)} checks passed.")
    lines += [f"> {markdown(note)}" for note in result.notes]
    return "\n".join(lines) + "\n"


def _case_json(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "row": case.row,
        "source": case.source,
        "violations": [
            {"demand": v.demand, "found": or_none(v.found), "allowed": or_none(v.allowed), "text": v.text}
            for v in case.violations
        ],
        "metrics": {name: or_none(value) for name, value in case.numbers.items()},
    }


def _numbers(case: Case) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in case.numbers.items() if not math.isnan(value))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", printable(text))
