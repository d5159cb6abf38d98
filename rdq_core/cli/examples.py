"""Examples at the end of a help text: what people copy."""


def examples(*lines: str, title: str = "Examples") -> str:
    """An epilog of commands, one a line, each as it is typed, and after two spaces what it is for."""
    return "\n".join(["\b", f"{title}:", *(f"  {line}" for line in lines)])
