"""Models that are written in a notebook: their lines are those of its cells, as the notebook numbers them."""

from __future__ import annotations

from types import SimpleNamespace

import IPython
import pytest
from ipykernel.compiler import XCachingCompiler

from etviz.graph.labels import cell_name, source_code, source_line, with_cells


def test_a_cell_has_the_number_that_the_notebook_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = XCachingCompiler()
    file = compiler.cache("class Net: ...", 3)
    stack = f'  File "{file}", line 26, in forward\n    return self.head(x)\n'
    assert source_line(stack) != "In[3]:26"
    assert with_cells(stack) == stack, "a trace of another notebook stays as it is"
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(compile=compiler))
    assert cell_name(file) == "In[3]"
    assert cell_name(__file__) == ""
    named = with_cells(stack + '  File "/tmp/ipykernel_1/2.py", line 1, in f\n    return x\n')
    assert named.splitlines()[0] == '  File "In[3]", line 26, in forward'
    assert "ipykernel_1/2.py" in named
    assert source_line(with_cells(stack)) == "In[3]:26"
    assert source_code(with_cells(stack)) == "return self.head(x)"
