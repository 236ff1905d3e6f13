"""Recordings of a lowering: the record file and the ETRecord."""
