"""One address for every row: rows of a program, and rows inside the delegates that were zoomed into."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from etviz.analysis.tables import Tables
from etviz.comparison.gap import COMPARED, Gap
from etviz.comparison.gap_tables import IDENTITY
from etviz.errors import UsageError, told

Call = tuple[int, int]

_NAMING: Final = ("name", "instruction", "op")
_ADDRESS: Final = re.compile(r"#(\d+)(\.\d+)?(\[\d+\])?(@\d+)?(\s.*)?", re.DOTALL)
_FIRST: Final = ("name", "share", "severity", "introduced_severity", "rmse", "source")
_EXPECTED: Final = "a name such as '#22', the path of a module, an index of gaps, or a row of gaps"


class Located(NamedTuple):
    """A row; `inside` is the zoomed delegate call, `number` its index in `Inspection.gaps` and in the view."""

    inside: Call | None
    tables: Tables
    at: int
    number: int

    @property
    def gap(self) -> Gap:
        return self.tables.gaps[self.at]

    @property
    def about(self) -> pd.Series:
        return self.tables.rows.iloc[self.at]

    @property
    def name(self) -> str:
        return str(self.tables.rows["name"].iloc[self.at])


class Rows:
    """The rows of a program, then the rows of zoomed delegates in the order of the zooms.

    `tables` and `inside` are replaced as a whole, so that no thread sees half of a change.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.inside: Mapping[Call, Tables] = {}

    def __len__(self) -> int:
        return len(self.tables) + sum(map(len, self.inside.values()))

    def parts(self) -> Iterator[tuple[int, Call | None, Tables]]:
        first = 0
        for inside, tables in [(None, self.tables), *self.inside.items()]:
            yield first, inside, tables
            first += len(tables)

    def placed(self, inside: Call | None, tables: Tables) -> pd.DataFrame:
        rows = tables.rows.drop(columns="stack")
        if inside is None:
            return rows
        return rows.assign(instruction=inside[1], event_block=self.tables.compared.runs[inside[0]].event_block)

    def find(self, row: Any) -> Located:
        """Find a row by its name, module, index, `etviz.inspection.Row`, or Series.

        A name may be its beginning (``#22``; ``#22[1]`` for the second output, ``#22.3`` for operator 3 inside the
        delegate call 22, ``#22@1`` for the second execution). A Series has ``name``, ``instruction`` and ``op``. Raises
        `UsageError` if the row does not exist, if several rows come from the module, or if the Series is of another
        table.
        """
        if isinstance(row, pd.Series):
            return self._of_series(row)
        if isinstance(row, str):
            return self._of_text(row.strip())
        if not hasattr(row, "__index__") or isinstance(row, (bool, np.bool_)):
            raise UsageError(f"row must be {_EXPECTED}, found {told(row)}")
        number = row.__index__()
        for first, inside, tables in self.parts():
            if first <= number < first + len(tables):
                return Located(inside, tables, number - first, number)
        raise UsageError(f"row must be an index of gaps from 0 to {len(self) - 1}, found {number}")

    def own(self, row: Any) -> Located:
        place = self.find(row)
        if place.inside is not None:
            raise UsageError(f"row {place.name} is inside the delegate call #{place.inside[1]} already; take that row")
        return place

    def _of_text(self, text: str) -> Located:
        parts = list(self.parts())
        if match := _ADDRESS.fullmatch(text):
            wanted = text[: match.start(5)] if match[5] else text
            short = re.sub(r"\[0\]|@0(?!\d)", "", wanted)  # names leave out what is 0
            for first, inside, tables in parts:
                if (at := tables.addresses.get(wanted, tables.addresses.get(short))) is not None:
                    return Located(inside, tables, at, first + at)
            raise UsageError(self._missing(wanted, int(match[1]), inner=match[2] is not None))
        modules = [(first, inside, tables, tables.modules.get(text, ())) for first, inside, tables in parts]
        for among in (modules[:1], modules[1:]):
            places = [Located(i, tables, at, first + at) for first, i, tables, rows in among for at in rows]
            if len(places) == 1:
                return places[0]
            if places:
                names = ", ".join(place.name.split()[0] for place in places[:8])
                more = f" and {len(places) - 8} more" if len(places) > 8 else ""
                raise UsageError(f"row {text!r} is the module of several rows: {names}{more}; name one of them")
        close = difflib.get_close_matches(text, [module for *_, tables, _ in modules for module in tables.modules], 3)
        hint = f"; modules with a similar name: {', '.join(close)}" if close else ""
        raise UsageError(f"row must be {_EXPECTED}, found {text[:80]!r}{hint}")

    def _missing(self, wanted: str, instruction: int, *, inner: bool) -> str:
        coverage = self.tables.coverage
        known = coverage[coverage["instruction"] == instruction]
        if known.empty:
            return f"there is no row {wanted}: the program has no instruction {instruction}; coverage lists all of them"
        if inner:
            zoomed = any(call[1] == instruction for call in self.inside)
            advice = f'zoom("#{instruction}"){".gaps lists its rows" if zoomed else " finds its rows"}'
            return f"there is no row {wanted} inside the delegate call #{instruction}; {advice}"
        missing = known[known["status"] != COMPARED]
        if missing.empty:
            return f"there is no row {wanted}: instruction {instruction} does not have this output or execution"
        return f"there is no row {wanted}: {missing['reason'].iloc[0] or 'it was not compared'}"

    def _of_series(self, row: pd.Series) -> Located:
        missing = [name for name in _NAMING if name not in row.index]
        if missing:
            raise UsageError(f"row must be {_EXPECTED}, found a Series without {', '.join(missing)}")
        address = str(row["name"]).split(" ", 1)[0]
        for first, inside, tables in self.parts():
            at = tables.addresses.get(address)
            if at is not None and all(_same(row, name, tables.rows[name].iloc[at], inside) for name in IDENTITY):
                return Located(inside, tables, at, first + at)
        raise UsageError(
            f"row must be {_EXPECTED}, found a Series of {address} that gaps does not have: "
            "it is a row of another table, or of another Inspection"
        )


def _same(row: pd.Series, name: str, value: Any, call: Call | None) -> bool:
    if name not in row.index:
        return True
    if call is not None and name == "instruction":
        return row[name] in (value, call[1])
    return (call is not None and name == "event_block") or row[name] == value


def row_count(name: str, count: int, most: int) -> int:
    if count < 0:
        raise UsageError(f"{name} must be a number of rows, 0 or more, found {count}")
    return min(count, most)


def told_first(rows: pd.DataFrame) -> pd.DataFrame:
    first = [name for name in _FIRST if name in rows]
    return rows[[*first, *(name for name in rows if name not in first)]]


def row_keys(gaps: pd.DataFrame) -> list[str]:
    """A name for each gap row that stays the same when other operators come and go."""
    seen: Counter[str] = Counter()
    keys = []
    columns = gaps[["input_index", "module", "op", "reference_ops", "output"]]
    for index, module, op, reference_ops, output in columns.itertuples(index=False):
        name = f"{module or '-'} {op} ({reference_ops}) output {output} input {index}"
        seen[name] += 1
        keys.append(f"{name} #{seen[name]}")
    return keys
