"""`rdq demo`: the whole story on an engine inside this process."""
