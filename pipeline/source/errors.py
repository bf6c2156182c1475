"""What goes wrong for whoever reads or writes through Spark; each text names the way out."""

from __future__ import annotations


class BadOption(ValueError):  # noqa: N818 - reads as what happened
    """An option that cannot be used, or one that is missing."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"option {name}: {problem}")


class DataLost(RuntimeError):  # noqa: N818 - reads as what happened
    """Records that were asked for are gone: deleted by retention, or with their topic."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Some data may have been lost; to go on with what is there, set "
            "the option failOnDataLoss to false"
        )


class ProgressLost(RuntimeError):  # noqa: N818 - reads as what happened
    """What was planned and what is there now contradict each other: never an empty batch."""
