"""Operator requests: loops over the engine's ports, the same for the command line and the ops
function.
"""
