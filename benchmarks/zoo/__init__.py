"""The zoo's harness: judges the programs of `tests/zoo` and writes docs/verdicts.md."""
