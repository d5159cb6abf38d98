"""A promise that was broken, by its sentence."""


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, promise: str, about: object) -> None:
        super().__init__(f"{promise}: {about}")
        self.promise = promise
        self.about = str(about)


def require(promise: str, holds: bool, about: object) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(promise, about)
