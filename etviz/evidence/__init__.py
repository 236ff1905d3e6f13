"""Many runs of a program: over inputs, over variants, of one input; and a measured fix."""
