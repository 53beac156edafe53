"""The sizes of the maps between an image and a small map."""


def pyramid(height: int, width: int, largest: int) -> list[tuple[int, int]]:
    """From (H, W) on, sides above ``largest`` are halved and rounded up, until there is none."""
    sizes = [(height, width)]
    while max(sizes[-1]) > largest:
        sizes.append(tuple(-(-side // 2) if side > largest else side for side in sizes[-1]))  # type: ignore[arg-type]
    return sizes


def strides(larger: tuple[int, int], smaller: tuple[int, int]) -> tuple[int, int]:
    """2 along the sides that shrink, 1 along the others."""
    return (1 + (larger[0] > smaller[0]), 1 + (larger[1] > smaller[1]))
