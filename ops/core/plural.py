"""Numbers with their noun, as a person writes them."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """“1 process”, “1,200 processes”; `plural` where it is not the noun with an s (or es after s, x, ch)."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {plural or noun + ending}"
