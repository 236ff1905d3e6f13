"""Many runs instead of one: over inputs, over variants, again and again; and a fix that is proved."""
