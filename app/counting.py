"""Numbers of things in words, the same in commands and screens."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 message``, ``2 messages``; ``many`` where an s is not enough."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def told_in_short(left_out: int, summarised: int) -> str:
    """What follows "4 earlier messages left out" where the model was told of some of them in short."""
    if not summarised:
        return ""
    return ", all told in short" if summarised >= left_out else f", {summarised} of them told in short"
