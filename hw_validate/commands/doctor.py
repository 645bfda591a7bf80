"""The verb doctor."""


def doctor() -> None:
    """Not there yet."""
