"""The severity profile as SVG, for pages without scripts and for paper."""

from __future__ import annotations

import math
from typing import Final

from etviz.analysis.analysis import Analysis
from etviz.text import markup

_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 110, 34, 8
_LEAST: Final = 0.1
_STEPS: Final = {"ok": "#808a95", "warn": "#c76a0c", "bad": "#8b0c1e"}
_MOST: Final = 900
"""Maximum number of stems: one for each pixel of the width."""


def profile_svg(analysis: Analysis) -> str:
    """Introduced severity (else the total) along the program; empty where no severity is known.

    Presentation attributes are used, since a report's policy forbids style attributes.
    """
    tables = analysis.tables
    gaps = analysis.gaps
    name = "introduced_severity" if tables.introduced else "severity"
    if gaps.empty or gaps[name].isna().all():
        return ""
    order = [row for row in tables.program_order if row not in tables.unused]
    values = gaps[name].astype(float).tolist()
    known = [(at, row, values[row]) for at, row in enumerate(order)]
    finite = [value for _, _, value in known if math.isfinite(value)]
    top = 2 * max([10.0, *finite])

    def height(value: float) -> float:
        if not value > _LEAST:
            return 0.0
        return min(1.0, math.log(value / _LEAST) / math.log(top / _LEAST)) * (_HEIGHT - _TOP)

    parts, scale = [], (_WIDTH - _LEFT) / max(1, len(order))
    for ten in range(int(math.log10(top)) + 1):
        y = _HEIGHT - height(10.0**ten)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH}" stroke="#c6cdd5"/>')
        parts.append(f'<text x="{_LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{10**ten}</text>')
    stems: dict[int, tuple[float, str]] = {}
    for at, row, value in known:
        level = tables.level(row)
        size = math.inf if level == "bad" and math.isnan(value) else value
        if math.isnan(size):
            continue
        place = int(at * min(1.0, _MOST / len(order)))
        stems[place] = max(stems.get(place, (-1.0, "")), (size, level))
    wide = scale * max(1.0, len(order) / _MOST)
    for place, (value, level) in stems.items():
        tall = height(value)
        parts.append(
            f'<rect x="{_LEFT + (place + 0.5) * wide - 1:.1f}" y="{_HEIGHT - tall:.1f}" width="2" height="{tall:.1f}" '
            f'fill="{_STEPS[level]}"/>'
        )
    label = f"{name.replace('_', ' ')} of {len(order)} values in program order"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 16}" role="img" aria-label="{markup(label)}" font-size="10" '
        f'fill="#56606c">{"".join(parts)}<path d="M{_LEFT} {_HEIGHT}H{_WIDTH}" stroke="#808a95"/>'
        f'<text x="{_LEFT}" y="{_HEIGHT + 13}">{markup(label)}; 1 is ideal rounding or the measured noise</text></svg>'
    )
