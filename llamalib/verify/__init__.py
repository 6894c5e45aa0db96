"""Hold a checkpoint against what was published about it."""
