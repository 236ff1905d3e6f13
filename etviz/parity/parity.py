"""`parity`: a port compared with the model that it is a port of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from etviz.errors import PairingError, UsageError, checked

if TYPE_CHECKING:
    import torch

    from etviz.parity.port_result import Parity


@checked
def parity(model: torch.nn.Module, reference: torch.nn.Module, inputs: Any, *, reference_inputs: Any = None) -> Parity:
    """Compare two eager models that should compute the same, before any lowering.

    Parameters are matched by their numbers, so no list of names is necessary. Modules with the same parameters are
    compared by what they receive and return, in units of measured rounding noise. At the first value that differs,
    hypotheses are applied to the model; the one that makes the value agree is proved.

    Parameters
    ----------
    model
        The port.
    reference
        The model that it is a port of, for example one of `transformers`.
    inputs
        Token ids (a tensor [1, n] or a list), another tensor, a tuple of arguments, or a dictionary of them.
    reference_inputs
        The same for the reference; by default the first of the `inputs` if that is a tensor of whole numbers and the
        model takes others beside it, such as positions, and else the `inputs`.

    Raises
    ------
    UsageError
        If a model fails on its inputs.
    PairingError
        If no parameter of the model has the numbers of one of the reference.

    Examples
    --------
    >>> etviz.parity(port, reference=hf_model, inputs=tokens).summary()  # doctest: +SKIP
    """
    import torch

    from etviz.parity.change_search import search
    from etviz.parity.port_result import Parity
    from etviz.parity.port_stages import put_side_by_side
    from etviz.parity.runs import LANES, Arguments

    for name, value in (("model", model), ("reference", reference)):
        if not isinstance(value, torch.nn.Module):
            raise UsageError(f"{name} must be a torch.nn.Module, found {type(value).__name__}")
    given = Arguments.of(inputs, "inputs")
    if reference_inputs is not None:
        other = Arguments.of(reference_inputs, "reference_inputs")
    else:
        first = given.args[0] if given.args else None
        alone = isinstance(first, torch.Tensor) and not first.is_floating_point()
        other = Arguments((first,)) if alone else given
    modes = [(module, module.training) for each in (model, reference) for module in each.modules()]
    try:
        for module, _ in modes:
            module.training = False
        with tqdm(total=2 + LANES, desc="etviz", leave=False) as bar:
            port = put_side_by_side(model, reference, given, other, bar.update)
            if not any(match.by == "value" and match.sources for match in port.matches.values()):
                raise PairingError(
                    f"none of the {len(port.tensors)} parameters of {type(model).__name__} has the numbers of one of "
                    f"the {len(port.reference_tensors)} of {type(reference).__name__}",
                    "Load the same weights into both. Tried: equal, rounded, scaled, offset, transposed, permuted, "
                    "fused and split",
                )
            bar.total = None
            return Parity(port, *search(port, bar.update))
    finally:
        for module, mode in modes:
            module.training = mode
