"""One address for every row: those of a program, and those inside of the delegates that were zoomed into."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from etviz.comparison.tables import IDENTITY
from etviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from etviz.analysis.tables import Tables
    from etviz.comparison.gap import Gap

Call = tuple[int, int]
"""A delegate call: number of the execution, and of the instruction."""

_NAMING: Final = ("instruction", "output", "op")
"""Columns without which a Series is no row of gaps."""


class Place(NamedTuple):
    """Where a row is.

    Attributes
    ----------
    inside
        The delegate call that was zoomed into; None for a row of the program itself.
    tables
        The tables that hold it.
    at
        Its position in them.
    """

    inside: Call | None
    tables: Tables
    at: int

    @property
    def gap(self) -> Gap:
        """What is behind the row."""
        return self.tables.gaps[self.at]

    @property
    def about(self) -> pd.Series:
        """The row itself."""
        return self.tables.rows.iloc[self.at]


class Rows:
    """The rows of a program, and those of zoomed delegates, which count on after them in the order of the zooms.

    Attributes
    ----------
    tables
        Those of the program; replaced as a whole when it is compared again.
    inside
        The tables of each zoomed delegate; replaced as a whole when one is added, so that a thread never sees half.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.inside: Mapping[Call, Tables] = {}

    def __len__(self) -> int:
        return len(self.tables) + sum(map(len, self.inside.values()))

    def parts(self) -> Iterator[tuple[int, Call | None, Tables]]:
        """Number of the first row, and the tables, of the program and then of each zoomed delegate."""
        first = 0
        for inside, tables in [(None, self.tables), *self.inside.items()]:
            yield first, inside, tables
            first += len(tables)

    def placed(self, inside: Call | None, tables: Tables) -> pd.DataFrame:
        """The rows of one of the `parts`; what is inside of a delegate stands at the instruction of its call."""
        rows = tables.rows.drop(columns="stack")
        if inside is None:
            return rows
        return rows.assign(instruction=inside[1], event_block=self.tables.compared.runs[inside[0]].event_block)

    def find(self, row: Any) -> Place:
        """The place of a row.

        Parameters
        ----------
        row
            Its number, or the row itself: a Series of `Inspection.gaps`, also of a zoomed delegate's, or another with
            the same index and the columns ``instruction``, ``output`` and ``op``, as `Inspection.attribution` has.

        Raises
        ------
        UsageError
            If there is no such row, or the Series is a row of another table.
        """
        if isinstance(row, pd.Series):
            return self._of_series(row)
        if not hasattr(row, "__index__") or isinstance(row, (bool, np.bool_)) or not 0 <= row < len(self):
            raise UsageError(f"row must be an index of gaps from 0 to {len(self) - 1}, found {row!r}")
        number = int(row)
        for first, inside, tables in self.parts():
            if number < first + len(tables):
                return Place(inside, tables, number - first)
        raise UsageError(f"row must be an index of gaps from 0 to {len(self) - 1}, found {row!r}")

    def own(self, row: Any) -> Place:
        """As `find`, for a row of the program itself.

        Raises
        ------
        UsageError
            If it is none.
        """
        place = self.find(row)
        if place.inside is not None:
            raise UsageError(
                f"row {_named(row)} is inside of the delegate call {place.inside[1]} already; "
                "take a row of the program's own"
            )
        return place

    def _of_series(self, row: pd.Series) -> Place:
        missing = [name for name in _NAMING if name not in row.index]
        if missing:
            raise UsageError(
                f"row must be an index of gaps or a row of gaps, found a Series without {', '.join(missing)}: "
                "it is a row of another table"
            )
        index = row.name
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool) and index >= 0:
            places = [(Place(i, t, int(index)), None) for _, i, t in self.parts() if index < len(t)]
            places += [(Place(i, t, int(index) - f), i) for f, i, t in self.parts() if i and f <= index < f + len(t)]
            fitting = [place for place, call in places if _same(row, place.about, call)]
            if fitting:
                return fitting[0]
        raise UsageError(
            f"row must be an index of gaps or a row of gaps, found a Series named {index!r} that gaps does not have: "
            "it is a row of another table, or of another Inspection"
        )


def _same(row: pd.Series, about: pd.Series, call: Call | None) -> bool:
    """True if every column that names a row holds the same in both; at the instruction of a `call` if one is given."""
    names = [name for name in IDENTITY if name in row.index]
    own = about if call is None else about.copy()
    if call is not None:
        own["instruction"] = call[1]
    return all(row[name] == own[name] for name in names)


def _named(row: Any) -> Any:
    return row.name if isinstance(row, pd.Series) else row


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
