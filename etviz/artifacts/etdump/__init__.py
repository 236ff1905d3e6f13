"""The runtime's recordings: the ETDump and the debug buffer."""
