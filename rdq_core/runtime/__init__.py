"""The outside world: time, randomness, logs and AWS, and how the parts of rdq are put together."""
