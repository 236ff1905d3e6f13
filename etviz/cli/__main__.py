"""``python -m etviz.cli``."""

from etviz.cli import main

main()
