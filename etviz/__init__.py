"""etviz tells which operator broke a model's numerics on its way to ExecuTorch, and why.

>>> inspection = etviz.debug(model, example_inputs, partitioner=[XnnpackPartitioner()])  # doctest: +SKIP
>>> inspection  # the widget  # doctest: +SKIP
"""

import gc

import lazy_loader

# Names are loaded when they are used: `import etviz` itself takes no torch and no executorch.
# `__init__.pyi` says the same to type checkers.
_load, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["errors"],
    submod_attrs={
        "_version": ["__version__"],
        "api": ["compare", "debug", "from_inspector", "load"],
        "gate.bundle": ["bundle", "verify"],
        "calls.driver": ["Call", "Driver"],
        "calls.lint": ["lint_calls"],
        "calls.recorder": ["record_calls"],
        "decoding.invariants": ["Invariants", "invariants"],
        "decoding.prompt_study": ["PromptStudy", "decode"],
        "decoding.port_card": ["PortCard", "port_card"],
        "decoding.result": ["Decode"],
        "parity.parity": ["parity"],
        "parity.port_result": ["Parity"],
        "pipeline.probe_program": ["Probe", "probe"],
        "pipeline.recipe": ["Recipe", "recipe"],
        "pipeline.record": ["record", "recording"],
        "comparison.results": ["Results", "compare_results"],
        "evidence.census": ["Census", "census"],
        "evidence.runner": ["study"],
        "evidence.study": ["Study"],
        "evidence.suggestion": ["Suggestion", "suggest"],
        "evidence.sweep": ["Sweep", "sweep"],
        "inspection": ["Inspection"],
        "settings": ["options"],
        "side_by_side": ["Comparison"],
        "tensors.metrics": ["metrics"],
    },
)


def __getattr__(name: str) -> object:
    """Load a name with the collector paused: it would walk through all of torch meanwhile."""
    paused = gc.isenabled()
    gc.disable()
    try:
        return _load(name)
    finally:
        if paused:
            gc.enable()
