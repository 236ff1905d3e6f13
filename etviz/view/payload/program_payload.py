"""One columnar payload for the cell, the side panel and the report.

Numbers travel as raw little-endian buffers, texts as int32 codes into sorted dictionaries, so that a view sorts by
code. In the JSON, ``{"buffer": k, "dtype": "float64", "length": n}`` names a buffer; single numbers that JSON lacks are
``"nan"``, ``"inf"``, ``"-inf"``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.analysis.profile import Profile
from etviz.analysis.summary import Fact
from etviz.analysis.tables import Tables
from etviz.comparison.gap import COMPARED
from etviz.graph.labels import module_labels, row_name
from etviz.graph.tree import KINDS, Tree
from etviz.json_numbers import as_text
from etviz.tensors.metrics import METRICS
from etviz.view.payload.beside import LIMITS, Beside
from etviz.view.payload.columns import Column, table_columns
from etviz.view.payload.explained import (
    ATTRIBUTION_COLUMNS,
    QUANTIZATION_COLUMNS,
    add_attribution,
    add_introduced_part,
    add_quantization,
)
from etviz.view.payload.wire import Answer, MessageBuffers, encode

VERSION: Final = 1
INNER: Final = "inner_name"
"""Column with the name of an inner row's operator, the key to its node in the trees."""
UNUSED: Final = "unused"
RAW: Final = "raw_op"
ADDRESS: Final = "row"
RUN: Final = "run"
LIMITED: Final = ("severity", "introduced_severity")
_TEXTS: Final = ("label", "backend", "op", "shape", "module", "source", "stack")


def column_names(analysis: Analysis) -> set[str]:
    fixed = (*table_columns(), *ATTRIBUTION_COLUMNS, *QUANTIZATION_COLUMNS)
    return {column.name for column in fixed} | {str(name) for name in analysis.tables.rows}


def table_rows(analysis: Analysis) -> tuple[pd.DataFrame, int]:
    """Gap rows, rows inside zoomed delegates, then instructions not compared; and the number of the former."""
    gaps = compared_rows(analysis)
    missing = analysis.tables.coverage
    missing = missing[missing["status"] != COMPARED]
    if missing.empty:
        return gaps, len(gaps)
    filled = missing.reindex(columns=gaps.columns)
    filled["latency_ms"] = filled["instruction"].map(analysis.latency)
    return pd.concat([gaps, filled.astype(gaps.dtypes.to_dict(), errors="ignore")], ignore_index=True), len(gaps)


def build_payload(analysis: Analysis, beside: Beside | None = None) -> Answer:
    buffers = MessageBuffers()
    rows, compared = table_rows(analysis)
    digest, finding = analysis.digest, analysis.finder.finding()
    added = pd.DataFrame() if beside is None else beside.added()
    if len(added):
        filled = added.reindex(columns=rows.columns)
        rows = pd.concat([rows, filled.astype(rows.dtypes.to_dict(), errors="ignore")], ignore_index=True)
    rows[RAW] = rows["op"]
    rows[ADDRESS], rows["op"] = _addresses(rows)
    runs = {run.event_block: number for number, run in enumerate(analysis.tables.compared.runs)}
    rows[RUN] = rows["event_block"].map(runs)
    notes = add_quantization(analysis, rows)
    add_introduced_part(rows)
    attribution = add_attribution(analysis, rows)
    others = [] if beside is None else beside.add_columns(rows, len(added))
    if beside is not None and beside.apart:  # of values against themselves
        rows = rows.drop(columns=[name for name in rows if str(name).removeprefix("introduced_") in METRICS])
    payload = {
        "version": VERSION,
        "title": analysis.title,
        "summary": {
            "level": digest.level,
            "verdict": digest.verdict,
            "facts": [asdict(fact) for fact in digest.facts],
            "notes": [*digest.notes, *notes],
            "finding": finding and asdict(finding),
        },
        "rows": len(rows),
        "compared": compared,
        "columns": [
            _column(column, rows, buffers)
            for column in (*table_columns(), *others, *ATTRIBUTION_COLUMNS, *QUANTIZATION_COLUMNS)
            if column.name in rows
        ],
        "unused": buffers.add(rows[UNUSED].fillna(0).astype(np.uint8), "uint8"),
        "zoomable": buffers.add(_zoomable_rows(analysis, len(rows)), "uint8"),
        "zooms": _zoom_list(analysis),
        "trees": {
            "program": _tree(analysis.tree, rows, buffers, nameable=True),
            "modules": _tree(analysis.modules, rows, buffers),
        },
        "edges": buffers.add(_edge_pairs(analysis), "int32"),
        "method": analysis.findings.shown_method,
        "methods": [analysis.findings.shown_method],
        "timeline": _timed(analysis.profile),
        "row_notes": {str(row): text for row, text in analysis.noted.items()},
        "attribution": attribution and attribution | {"sum": as_text(attribution["sum"])},
    }
    if beside is not None:
        summary = payload["summary"]
        about = Fact(beside.labels[0], digest.verdict, digest.level)
        if beside.apart:
            about = Fact(beside.labels[0], "The reference of the others.", "unknown")
        theirs = beside.summary(rows)
        payload["title"] = beside.title
        payload["summary"] = summary | theirs | {"facts": [asdict(about), *theirs["facts"], *summary["facts"]]}
        payload["beside"] = [
            {"label": label, "tree": _tree(other.tree, _named(table), buffers, nameable=True)}
            for label, other, table in beside.trees(len(rows), len(added))
        ]
        payload["label"] = beside.labels[0]
        for column in payload["columns"]:
            if column["name"] in LIMITED:
                column["label"] = f"{beside.labels[0]}: {column['label']}"
    return payload, buffers.data


def empty_payload(title: str, level: str, lines: Sequence[str]) -> Answer:
    buffers = MessageBuffers()
    rows = pd.DataFrame({name: [] for name in ("instruction", "output", INNER)})
    payload = {
        "version": VERSION,
        "title": title,
        "summary": {"level": level, "verdict": lines[0], "facts": [], "notes": list(lines[1:]), "finding": None},
        "rows": 0,
        "compared": 0,
        "columns": [],
        "trees": {name: _tree(Tree(), rows, buffers) for name in ("program", "modules")},
        "methods": [""],
        "method": "",
        "timeline": None,
        "attribution": None,
    }
    return payload, buffers.data


def _addresses(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    fields = ["name", "instruction", "kind", RAW, "reference_ops", "module"]
    addresses, names = [], []
    places = module_labels(rows["module"].fillna(""))
    known = rows[fields].fillna({"reference_ops": "", "module": ""})
    for name, instruction, kind, op, reference_ops, module in known.itertuples(index=False):
        if isinstance(name, str):
            address, _, text = name.partition(" ")
        else:
            address = f"#{int(instruction)}" if pd.notna(instruction) else ""
            text = " · ".join(filter(None, (places[module], row_name(kind, op, reference_ops, ""))))
        addresses.append(address)
        names.append(text)
    return addresses, names


def _timed(profile: Profile) -> dict[str, Any] | None:
    runs = len(profile.executions)
    about = {"runs": runs, "typical": profile.typical, "note": profile.note, "distorted": profile.distorted}
    return about if runs else None


def _named(table: pd.DataFrame) -> pd.DataFrame:
    known = table[table["name"].notna()].assign(**{RAW: table["op"], INNER: table[INNER].fillna("")})
    known[ADDRESS], known["op"] = _addresses(known)
    return known.reindex(table.index).fillna({INNER: ""})


def _column(column: Column, rows: pd.DataFrame, buffers: MessageBuffers) -> dict[str, Any]:
    about = asdict(column) | {"kind": column.kind}
    series = rows[column.name]
    if column.kind == "number":
        names = [f"{column.name}{end}" for end in LIMITS]
        if names[0] in rows:
            about["limits"] = [buffers.add(rows[name].to_numpy(float), "float64") for name in names]
        return about | {"values": buffers.add(pd.to_numeric(series, errors="coerce").to_numpy(float), "float64")}
    codes, dictionary = encode([_text(value) for value in series.to_numpy(object)])
    return about | {"values": buffers.add(codes, "int32"), "dictionary": dictionary}


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(str, value))}]"
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _tree(tree: Tree, rows: pd.DataFrame, buffers: MessageBuffers, *, nameable: bool = False) -> dict[str, Any]:
    about: dict[str, Any] = {
        "nodes": len(tree),
        "depth": buffers.add(tree.depth, "uint16"),
        "size": buffers.add(tree.size, "int32"),
        "kind": buffers.add([KINDS.index(kind) for kind in tree.kind], "uint8"),
        "kinds": list(KINDS),
        "instruction": buffers.add(tree.instruction, "int32"),
        "latency": buffers.add(tree.latency, "float64"),
        "operators": buffers.add(tree.operators, "int32"),
    }
    texts = {name: getattr(tree, name) for name in _TEXTS} | {"number": [""] * len(tree)}
    if nameable:
        texts["number"], texts["label"] = _node_names(tree, rows)
    for name, items in texts.items():
        codes, dictionary = encode(items)
        about[name] = buffers.add(codes, "int32")
        about[f"{name}s"] = dictionary
    instructions = pd.to_numeric(rows["instruction"]).fillna(-1).astype(int)
    outputs = pd.to_numeric(rows["output"]).fillna(0).astype(int)
    inner = rows[INNER].fillna("")
    nodes = [
        tree.by_inner.get((i, name), -1) if name else tree.node_of(i, o)
        for i, o, name in zip(instructions, outputs, inner, strict=True)
    ]
    return about | {"row_node": buffers.add(nodes, "int32")}


def _node_names(tree: Tree, rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    numbered = (number >= 0 and kind != "inner" for number, kind in zip(tree.instruction, tree.kind, strict=True))
    numbers = [f"#{at}" if shown else "" for at, shown in zip(tree.instruction, numbered, strict=True)]
    labels = list(tree.label)
    known = rows[rows["instruction"].notna()].fillna({INNER: ""}).drop_duplicates(["instruction", INNER])
    for instruction, inner, address, name in known[["instruction", INNER, ADDRESS, "op"]].itertuples(index=False):
        at = int(instruction)
        node = tree.by_inner.get((at, inner), -1) if inner else tree.node_of(at, 0)
        if node >= 0:
            numbers[node], labels[node] = re.sub(r"[\[@].*", "", address), name
    return numbers, labels


def compared_rows(analysis: Analysis) -> pd.DataFrame:
    """Rows of zoomed delegates come last, with the delegate's instruction."""
    frames = []
    for _, call, tables in analysis.rows.parts():
        names = [gap.node.name for gap in tables.gaps] if call is not None else ""
        rows = analysis.rows.placed(call, tables).assign(**{INNER: names}, **_limits(tables))
        rows[UNUSED] = rows.index.isin(tables.unused).astype(float)
        frames.append(rows)
    shown = [frame for frame in frames if len(frame)]
    return pd.concat(shown, ignore_index=True) if len(shown) > 1 else frames[0]


def _limits(tables: Tables) -> dict[str, list[float]]:
    ends = {name: tables.limits(name) for name in LIMITED}
    return {f"{name}{end}": ends[name][side] for name in LIMITED for side, end in enumerate(LIMITS)}


def _zoomable_rows(analysis: Analysis, rows: int) -> npt.NDArray[np.uint8]:
    flags = np.zeros(rows, np.uint8)
    inside, zooms = analysis.inside, analysis.zooms
    known: dict[tuple[int, int], bool] = {}
    for row, gap in enumerate(analysis.tables.gaps):
        call = gap.run, gap.instruction
        if gap.node.subgraphs and call not in known:
            known[call] = zooms.possible(row) and zooms.call(row) not in inside
        flags[row] = known.get(call, False)
    return flags


def _zoom_list(analysis: Analysis) -> list[dict[str, Any]]:
    first: dict[tuple[int, int], int] = {}
    for row, gap in enumerate(analysis.tables.gaps):
        first.setdefault((gap.run, gap.instruction), row)
    zooms = [(call, inner.findings.zoom) for call, inner in analysis.inside.items()]
    return [
        {
            "row": first[call],
            "instruction": call[1],
            "faithful": zoom.faithful,
            "deviation": as_text(zoom.deviation),
            "message": zoom.message,
        }
        for call, zoom in zooms
        if zoom is not None
    ]


def _edge_pairs(analysis: Analysis) -> npt.NDArray[np.int32]:
    pairs = dict.fromkeys((edge.source, edge.target) for edge in analysis.edges)
    return np.array(list(pairs), np.int32).reshape(-1)
