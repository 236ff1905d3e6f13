"""Delegates that are lowered through TOSA, opened with Arm's reference model; needs the extra ``tosa``."""
