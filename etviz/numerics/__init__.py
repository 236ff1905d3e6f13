"""How far runtime and reference are apart, and who made it so."""
