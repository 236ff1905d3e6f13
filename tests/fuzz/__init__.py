"""Damaged and hostile files of every kind: each ends in a result or an error of etviz, soon and in little memory.

A worker process with limits reads the files, so that a crash, a hang or a flood of memory is a failed test and not
the end of the test run. `make fuzz` tries many more examples than `make test` and prints how many of which kind.
"""
