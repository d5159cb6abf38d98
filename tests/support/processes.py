"""Processes that tests start and wait for."""

from typing import Final

HANGS: Final = 600.0
"""Seconds after which a process hangs, on whatever machine. What a test is about never depends on
it.
"""
