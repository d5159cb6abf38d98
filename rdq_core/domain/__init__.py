"""The rules about tasks, as pure values and functions: no I/O, no clock, no randomness."""
