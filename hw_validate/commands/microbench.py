"""The verb microbench."""


def microbench() -> None:
    """Not there yet."""
