"""Patterns on error types: `*` matches any text, also dots or nothing, `?` exactly one character.

Case matters, and the whole text must match. Nothing else is special, brackets included. The time is
bounded by pattern length times text length, because patterns come from configuration and error
types from anywhere.
"""


def matches(glob: str, text: str) -> bool:
    """Whether `glob` matches the whole of `text`, line breaks included."""
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
            # Only the last star needs to be tried again: an earlier one that took more text would
            # leave the later parts less to match.
            resume += 1
            at, in_glob = resume, star + 1
        else:
            return False
    return not glob[in_glob:].strip("*")
