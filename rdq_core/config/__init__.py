"""Queue configuration: what a file may say, how layers merge, and the settings that come of it.

`units`, `settings`, `merge`, `effective` and `ladder` need nothing but the standard library. Only
what reads people's files and requests, `document` and `checking`, loads pydantic and YAML.
"""
