"""Numbers of things in words, the same in commands and screens."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 message``, ``2 messages``; ``many`` where an s is not enough."""
    return f"{number} {one if number == 1 else many or one + 's'}"
