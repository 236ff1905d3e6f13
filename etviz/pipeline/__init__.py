"""A model to artifacts: export, lower, record, run."""
