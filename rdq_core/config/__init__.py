"""Queue configuration: the table of settings, the merging of layers, and the format of files.

Only `reader`, which reads files, and `document`, which uses it, need more than the standard
library: they load YAML.
"""
