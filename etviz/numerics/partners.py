"""Which operator of the quantized program answers which operator of the float program, by their names.

PT2E quantization keeps the names of the exported operators. What it folds or drops has no partner, and is said so.
"""

from __future__ import annotations

from dataclasses import dataclass

from etviz.artifacts.ir import Node
from etviz.graph.inline import Key
from etviz.numerics.operator_values import Operator, Values


@dataclass(frozen=True, slots=True)
class Partner:
    """One value of a float operator, and what answers it.

    Attributes
    ----------
    op, output
        Name of the float operator, and which of its outputs this is.
    module
        Path of the module that calls it.
    floating
        The value in the float graph.
    value
        The value in the quantized graph before it is quantized; None where it has no partner, `reason` says why.
    quantize
        What puts that value on a grid; None where nothing does.
    folded
        Name of the batch norm that the operator took in, empty if none.
    note
        What has to be known to read the numbers.
    """

    op: str
    output: int
    module: str
    floating: Key
    value: Key | None = None
    quantize: Node | None = None
    folded: str = ""
    reason: str = ""
    note: str = ""


def find_partners(floats: Values, quantized: Values) -> list[Partner]:
    """A partner for each value of each float operator, in program order."""
    folded = _folded(floats, quantized)
    found: list[Partner] = []
    for name, operator in floats.operators.items():
        taken_in = folded.get(name, "")
        into = next((conv for conv, norm in folded.items() if norm == name), "")
        source = floats.operators[taken_in] if taken_in else operator
        if into:
            reason = f"batch norm was folded into the convolution {into}: no partner"
            found.append(Partner(name, 0, operator.module, _keys(floats, operator)[0], reason=reason))
            continue
        found.extend(
            _match(floats, quantized, operator, source, key, taken_in)
            for key in _keys(floats, source)
            if floats.meta(key) is not None
        )
    return found


def _keys(values: Values, operator: Operator) -> list[Key]:
    node = operator.last[-1] if operator.last else operator.nodes[-1]
    return [(node.name, output) for output in values.used_outputs(node)]


def _match(floats: Values, quantized: Values, operator: Operator, source: Operator, key: Key, folded: str) -> Partner:
    name, module = operator.name, operator.module
    answer = quantized.operators.get(name)
    meta = floats.meta(key)
    node = answer.last[-1] if answer is not None and answer.last else None
    reason = ""
    if meta is not None and "float" not in meta.dtype:
        reason = f"its values are {meta.dtype}, no floating-point numbers"
    elif answer is None or node is None:
        reason = "it is not in the lowered program: dropped, or merged into another operator"
    elif len(answer.last) > 1 or len(source.last) > 1:
        reason = "lowering made several operators of it, whose values can't be told apart"
    elif module and answer.module and module != answer.module:
        reason = f"the operator of this name belongs to the module {answer.module} in the lowered program"
    elif key[1] >= len(node.outputs):
        reason = "its outputs are not those of the lowered program"
    if reason or node is None:
        return Partner(name, key[1], module, key, reason=reason)
    value = (node.name, key[1])
    note = f"compared with {folded} of the float model, which was folded into it" if folded else ""
    if value in quantized.several:
        note = "; ".join(filter(None, (note, "it is quantized in several ways, the first is shown")))
    return Partner(name, key[1], module, key, value, quantized.quantized.get(value), folded, note=note)


def _folded(floats: Values, quantized: Values) -> dict[str, str]:
    """``convolution → batch norm`` for each norm that the quantized program took into the operator before it."""
    found = {}
    for name, operator in floats.operators.items():
        norm = next((node for node in operator.nodes if "batch_norm" in node.target), None)
        if norm is None or name in quantized.operators or not norm.args or not hasattr(norm.args[0], "name"):
            continue
        key = floats.key(norm.args[0].name)
        before = floats.owner(key)
        alone = len(floats.users.get(key, ())) == 1 and key not in floats.outputs
        if before in quantized.operators and alone:
            found[before] = name
    return found
