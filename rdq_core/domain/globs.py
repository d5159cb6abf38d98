"""Patterns on error types: `*` stands for any text, dots and nothing included, `?` for exactly one
character.

Case counts and the whole text must match. Nothing else is special: a bracket is a bracket. The time
is bounded by pattern length times text length, because patterns come from configuration and error
types from anywhere.
"""


def matches(glob: str, text: str) -> bool:
    """Whether `glob` describes the whole of `text`, line breaks included."""
    at = in_glob = 0
    star, resume = -1, 0
    while at < len(text):
        if in_glob < len(glob) and glob[in_glob] == "*":
            star, resume = in_glob, at
            in_glob += 1
        elif in_glob < len(glob) and glob[in_glob] in ("?", text[at]):
            in_glob += 1
            at += 1
        elif star >= 0:
            # Only the last star needs to be retried: an earlier one could gain nothing by taking
            # more.
            resume += 1
            at, in_glob = resume, star + 1
        else:
            return False
    return not glob[in_glob:].strip("*")
