"""Tests of etviz, in folders that mirror the package."""
