"""What is true about tasks: pure values and rules, with no I/O, no clock and no dice."""
