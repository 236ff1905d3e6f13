"""A suggestion prints these classes, so they do not use etviz."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Iterable
from typing import Any


@functools.lru_cache(maxsize=1)
def keep_in_float_class() -> type:
    from torchao.quantization.pt2e.quantizer import Quantizer

    class KeepInFloat(Quantizer):
        def __init__(self, quantizer: Any, names: Iterable[str]) -> None:
            super().__init__()
            self.quantizer, self.names = quantizer, frozenset(names)

        def transform_for_annotation(self, model: Any) -> Any:
            return self.quantizer.transform_for_annotation(model)

        def annotate(self, model: Any) -> Any:
            self.quantizer.annotate(model)
            for node in model.graph.nodes:
                if node.name in self.names:
                    node.meta.pop("quantization_annotation", None)
            return model

        def validate(self, model: Any) -> None:
            self.quantizer.validate(model)

    return KeepInFloat


@functools.lru_cache(maxsize=1)
def keep_off_backend_class() -> type:
    from executorch.exir.backend.partitioner import Partitioner, PartitionResult

    class KeepOffBackend(Partitioner):
        def __init__(self, partitioner: Any, names: Iterable[str]) -> None:
            super().__init__()
            self.partitioner, self.names = partitioner, frozenset(names)

        def ops_to_not_decompose(self, ep: Any) -> Any:
            return self.partitioner.ops_to_not_decompose(ep)

        def is_kept(self, node: Any) -> bool:
            names, sources = {node.name}, node.meta.get("from_node") or []
            while sources:
                names.add(sources[-1].name)
                sources = sources[-1].from_node
            return bool(names & self.names)

        def partition(self, exported_program: Any) -> Any:
            result = self.partitioner.partition(exported_program)
            tags: dict[str, Any] = {}
            levels: dict[Any, int] = {}
            for node in result.tagged_exported_program.graph.nodes:
                # Operators after a kept one form another partition, so that no partition depends on itself.
                before = node.all_input_nodes
                levels[node] = max(
                    (levels[n] + (n.op == "call_function" and self.is_kept(n)) for n in before), default=0
                )
                tag = node.meta.get("delegation_tag")
                if node.op != "call_function" or tag is None:
                    continue
                if self.is_kept(node):
                    del node.meta["delegation_tag"]
                else:
                    node.meta["delegation_tag"] = f"{tag}_{levels[node]}"
                    tags[node.meta["delegation_tag"]] = result.partition_tags[tag]
            for node in result.tagged_exported_program.graph.nodes:
                if node.op != "call_function" and "delegation_tag" in node.meta:  # a weight
                    readers = {user.meta.get("delegation_tag") for user in node.users}
                    del node.meta["delegation_tag"]
                    if len(readers) == 1 and readers != {None}:
                        node.meta["delegation_tag"] = readers.pop()
            return PartitionResult(result.tagged_exported_program, tags)

    return KeepOffBackend


def source_of(kind: type, needs: str) -> str:
    return f"{needs}\n\n\n{textwrap.dedent(inspect.getsource(kind))}"
