"""What was recorded when the program was lowered: the record file and the ETRecord."""
