"""State of the views of a `Decode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from etviz.analysis.analysis import Analysis
from etviz.decoding.sequence import Decoded
from etviz.errors import UsageError
from etviz.explain.attribution.shares import Progress
from etviz.inspection import Inspection
from etviz.view.pages.html_tables import tokens_fragment, tokens_summary
from etviz.view.pages.report_page import framed, report_page
from etviz.view.payload.program_payload import build_payload, empty_payload
from etviz.view.payload.token_maps import Map, layer_map, tokens_wire
from etviz.view.payload.wire import MessageBuffers
from etviz.view.widget.state import ViewState

if TYPE_CHECKING:
    import pandas as pd


Call = tuple[int, int]
_HEIGHT: Final = 900


class Card(Protocol):
    def wire(self) -> dict[str, Any]: ...
    def to_fragment(self) -> str: ...


class Tokens(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def sequences(self) -> Sequence[Decoded]: ...
    @property
    def to_open(self) -> Call: ...
    @property
    def known_cache(self) -> pd.DataFrame | None: ...
    @property
    def card(self) -> Card | None: ...
    def summary(self) -> str: ...
    def told_steps(self) -> pd.DataFrame: ...
    def at(self, step: int, prompt: int = 0) -> Inspection: ...
    def attribute(self, step: int, prompt: int, progress: Progress | None = None) -> pd.DataFrame: ...


class DecodeView(ViewState):
    def __init__(self, decode: Tokens, call: Call | None = None, opened: dict[Call, DecodeView] | None = None) -> None:
        self.decode, self.call = decode, call
        self._opened: dict[Call, DecodeView] = {} if opened is None else opened
        super().__init__(None if call is None else decode.at(call[1], call[0]).analysis)
        self.height = _HEIGHT

    @property
    def title(self) -> str:
        return self.decode.title

    @property
    def known_digest(self) -> None:
        """The verdict is that of the tokens."""

    @property
    def analyses(self) -> Sequence[Analysis]:
        return () if self._analysis is None else (self._analysis,)

    @property
    def methods(self) -> list[str]:
        return [name_of(self.call)]

    @property
    def rows(self) -> int:
        return 0 if self._analysis is None else super().rows

    @property
    def columns(self) -> set[str]:
        return {self.sort_by} if self._analysis is None else super().columns

    @property
    def opened(self) -> list[DecodeView]:
        return [self._opened[call] for call in sorted(self._opened)]

    def method(self, name: str) -> DecodeView:
        """``prompt:step``; the call runs again with every value logged."""
        prompt, _, step = name.partition(":")
        if not (prompt.isdecimal() and step.isdecimal() and len(name) < 20):
            raise UsageError(f"a call is named by prompt and step, such as 0:5; found {name[:40]!r}")
        call = int(prompt), int(step)
        if call not in self._opened:
            self._opened[call] = DecodeView(self.decode, call, self._opened)
        return self._opened[call]

    def attribute(self, params: dict[str, Any], progress: Callable[[int, int], None]) -> None:
        if self.call is not None:
            self.decode.attribute(self.call[1], self.call[0], progress)

    def payload(self) -> tuple[dict[str, Any], list[bytes]]:
        verdict, level = self.decode.summary().splitlines(), self.decode.level
        if self._analysis is None:
            result, data = empty_payload(self.title, level, verdict)
        else:
            result, data = build_payload(self.analysis)
        return self.with_tokens(result, data)

    def with_tokens(self, result: dict[str, Any], data: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        decode, buffers = self.decode, MessageBuffers(data)
        maps = [one for prompt in range(len(decode.sequences)) if (one := self._layers(prompt)) is not None]
        card = None if decode.card is None else decode.card.wire()
        tokens = tokens_wire(decode.told_steps(), buffers, self.call, decode.summary(), maps, self._caches(), card)
        return result | {"tokens": tokens, "method": name_of(self.call)}, buffers.data

    def _layers(self, prompt: int) -> Map | None:
        sequence = self.decode.sequences[prompt]
        gaps: list[tuple[int, pd.DataFrame]] = []
        for one in self.opened:
            if one.call is not None and one.call[0] == prompt:
                runs = len(one.analysis.tables.compared.runs)
                gaps.append((one.call[1] + 1 - runs, one.analysis.gaps))
        return layer_map(prompt, len(sequence.calls), gaps)

    def _caches(self) -> list[Map]:
        known = self.decode.known_cache
        if known is None or known.empty:
            return []
        table = known.pivot_table("severity", "layer", "position", "max", dropna=False)
        return [Map(int(known["prompt"].iloc[0]), [f"layer {layer}" for layer in table.index], table.to_numpy(float))]

    def static_html(self) -> str:
        decode = self.decode
        return tokens_fragment(self.title, decode.level, decode.summary(), decode.told_steps(), self._card)

    @property
    def _card(self) -> str:
        return "" if self.decode.card is None else self.decode.card.to_fragment()

    def embedded_html(self) -> str:
        return framed(self.title, self.height, lambda tensors: self.page(tensors, self.title), self.static_html())

    def page(self, tensors: str, title: str) -> bytes:
        shown = self.opened or [self.method(name_of(self.decode.to_open))]
        return report_page(
            shown[0].analysis,
            tensors,
            title,
            summary=tokens_summary(
                title, self.decode.level, self.decode.summary(), self.decode.told_steps(), self._card
            ),
            others=[one.analysis for one in shown[1:]],
            names=[name_of(one.call) for one in shown],
            adds=[one.with_tokens for one in shown],
        )


def name_of(call: Call | None) -> str:
    return "" if call is None else f"{call[0]}:{call[1]}"
