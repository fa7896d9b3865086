"""The decisions: pure functions and frozen values, without I/O, clock or randomness."""
