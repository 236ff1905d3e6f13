"""Recordings made when the program was lowered: the record file and the ETRecord."""
