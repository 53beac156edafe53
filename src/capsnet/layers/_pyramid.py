"""The sizes that an image passes on its way down to a small map, or back up from one."""


def pyramid(height: int, width: int, largest: int) -> list[tuple[int, int]]:
    """From (H, W), halved and rounded up, side by side, until no side is above ``largest``; first (H, W) itself.

    A side that is small enough already waits for the other, so a narrow image is not squeezed to a line.
    """
    sizes = [(height, width)]
    while max(sizes[-1]) > largest:
        sizes.append(tuple(-(-side // 2) if side > largest else side for side in sizes[-1]))  # type: ignore[arg-type]
    return sizes


def strides(larger: tuple[int, int], smaller: tuple[int, int]) -> tuple[int, int]:
    """2 along the sides that shrink, 1 along those that stay."""
    return (1 + (larger[0] > smaller[0]), 1 + (larger[1] > smaller[1]))
