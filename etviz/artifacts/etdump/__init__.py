"""What the runtime recorded: the ETDump and the debug buffer."""
