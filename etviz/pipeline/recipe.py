"""Recipes: one way to lower a model."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from etviz.errors import UsageError, checked, told
from etviz.pipeline.interpreters import INSTALL_COREAI, INSTALL_TOSA
from etviz.upstream.executorch import quietly


@dataclass(frozen=True, slots=True)
class Recipe:
    """Made by `recipe`; the attributes are the arguments of `etviz.debug`."""

    partitioner: Sequence[Any] | None = None
    quantizer: Any = None
    calibration: Iterable[Sequence[Any]] | None = None
    strict: bool = True


@checked
def recipe(
    name: str | None = None,
    *,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    strict: bool = True,
) -> Recipe:
    """One way to lower a model.

    Parameters
    ----------
    name
        A known recipe, to which the other arguments are added: ``portable``, ``xnnpack``, ``xnnpack-int8``,
        ``openvino``, ``tosa``, ``tosa-int8``, ``ethos-u55``, ``ethos-u65``, ``ethos-u85``, ``vgf``, ``vgf-int8``,
        ``coreai``. Those for Ethos-U and with ``int8`` quantize with the vendor's quantizer.
    partitioner, quantizer, calibration, strict
        As for `etviz.debug`.

    Raises
    ------
    UsageError
        If the recipe does not exist, or its backend is not installed.

    Examples
    --------
    >>> int8 = etviz.recipe("xnnpack-int8", calibration=batches)  # doctest: +SKIP
    >>> etviz.debug(model, example_inputs, int8)  # doctest: +SKIP
    """
    known = _named(name) if name is not None else Recipe()
    given = Recipe(partitioner, quantizer, calibration, strict)
    return Recipe(
        given.partitioner or known.partitioner,
        given.quantizer or known.quantizer,
        given.calibration,
        known.strict and strict,
    )


def lowering(how: Recipe | str | None, **given: Any) -> dict[str, Any]:
    if how is None:
        return given
    recipe = _named(how) if isinstance(how, str) else how
    if not isinstance(recipe, Recipe):
        raise UsageError(f"recipe must be a name ({', '.join(_KNOWN)}) or made by etviz.recipe, found {told(how)}")
    parts = {name: getattr(recipe, name) for name in given if hasattr(recipe, name)}
    doubled = [name for name in parts if given[name] not in (None, True)]
    if doubled:
        raise UsageError(f"{doubled[0]} is a part of the recipe; give it to etviz.recipe, or leave the recipe out")
    return given | parts


def of_variant(how: Recipe | str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(how, (str, Recipe)):
        return lowering(how, partitioner=None, quantizer=None, calibration=None, strict=True)
    return how


def _named(name: str) -> Recipe:
    if name not in _KNOWN:
        raise UsageError(f"recipe must be one of {', '.join(_KNOWN)}, found {name[:40]!r}")
    try:
        with quietly():
            return _KNOWN[name]()
    except ImportError as error:
        command = _COMMANDS.get(name.partition("-")[0])
        advice = f"; {command}" if command else ""
        raise UsageError(f"the recipe {name} needs a package that is not installed here ({error}){advice}") from error


def _xnnpack() -> Recipe:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return Recipe([XnnpackPartitioner()])


def _xnnpack_int8() -> Recipe:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    return Recipe(_xnnpack().partitioner, quantizer)


def _openvino() -> Recipe:
    from executorch.backends.openvino.partitioner import OpenvinoPartitioner
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    return Recipe([OpenvinoPartitioner([CompileSpec("device", b"CPU")])])


def _ethos_u(target: str) -> Recipe:
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer

    return _arm(EthosUCompileSpec(target), EthosUPartitioner, EthosUQuantizer)


def _tosa(profile: str) -> Recipe:
    from executorch.backends.arm.quantizer import TOSAQuantizer
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner

    return _arm(TosaCompileSpec(f"TOSA-1.0+{profile}"), TOSAPartitioner, TOSAQuantizer if profile == "INT" else None)


def _vgf(*, quantized: bool) -> Recipe:
    """The command that lowers is on no path unless the environment is activated."""
    programs = str(Path(sys.executable).parent)
    if shutil.which("model-converter") is None and programs not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), programs)))
    from executorch.backends.arm.quantizer import VgfQuantizer
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner

    return _arm(VgfCompileSpec(), VgfPartitioner, VgfQuantizer if quantized else None)


def _coreai() -> Recipe:
    os.environ.setdefault("ENABLE_DEBUG_INFO", "1")  # else the model does not name the operators that it comes from
    from executorch.backends.apple.coreai import CoreAIPartitioner

    return Recipe([CoreAIPartitioner()])


def _arm(spec: Any, partitioner: Any, quantizer: Any) -> Recipe:
    if quantizer is None:
        return Recipe([partitioner(spec)])
    from executorch.backends.arm.quantizer import get_symmetric_quantization_config

    return Recipe([partitioner(spec)], quantizer(spec).set_global(get_symmetric_quantization_config()))


_KNOWN: Final[Mapping[str, Callable[[], Recipe]]] = {
    "portable": Recipe,
    "xnnpack": _xnnpack,
    "xnnpack-int8": _xnnpack_int8,
    "openvino": _openvino,
    "tosa": partial(_tosa, "FP"),
    "tosa-int8": partial(_tosa, "INT"),
    "ethos-u55": partial(_ethos_u, "ethos-u55-128"),
    "ethos-u65": partial(_ethos_u, "ethos-u65-256"),
    "ethos-u85": partial(_ethos_u, "ethos-u85-256"),
    "coreai": _coreai,
    "vgf": partial(_vgf, quantized=False),
    "vgf-int8": partial(_vgf, quantized=True),
}
_COMMANDS: Final = {
    "openvino": "pip install 'etviz[openvino]'",
    "coreai": INSTALL_COREAI,
    **dict.fromkeys(("tosa", "ethos", "vgf"), INSTALL_TOSA),
}
