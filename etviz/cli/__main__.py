"""``python -m etviz.cli``."""

from etviz.cli.app import main

main()
