"""All commands as one app."""

from etviz.cli.commands import make_app

app = make_app()
