"""Queue configuration: the table of settings, how layers of it merge, and what a file may contain.

Only `reader`, which reads files, and `document`, which uses it, need more than the standard
library: they load YAML.
"""
