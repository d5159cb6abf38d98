"""The outside world: the system's time, chance and names, where events go, and how the parts are
put together.
"""
