"""Splits: stratified, disjoint, complete, and stable when images are added."""

import numpy as np
import pytest
from numpy.typing import NDArray

from capsnet.data.folders._stratify import Examples, draw_folds, draw_parts


def make(counts: dict[str, int], *, groups: list[int] | None = None) -> Examples:
    """Single-label examples named CLASS/NUMBER.png."""
    names = tuple(f"{name}/{i}.png" for name, count in counts.items() for i in range(count))
    member = np.array([[name.startswith(f"{c}/") for c in counts] for name in names])
    numbers = np.arange(len(names)) if groups is None else np.array(groups)
    return Examples("data", names, member, numbers.astype(np.int64), tuple(counts))


def parts_of(examples: Examples, test: float = 0.15, validation: float = 0.15, seed: int = 0) -> NDArray[np.int64]:
    """0 test, 1 validation, 2 train."""
    return draw_parts(examples, (test, validation), seed=seed, stream="t")


def placed(examples: Examples, part: NDArray[np.int64]) -> dict[str, int]:
    return dict(zip(examples.names, part.tolist(), strict=True))


def test_each_class_is_cut_by_its_fractions() -> None:
    examples = make({"a": 100, "b": 20, "c": 3, "d": 7})
    part = parts_of(examples)
    sizes = np.stack([np.bincount(part[examples.member[:, j]], minlength=3) for j in range(4)])
    assert sizes.tolist() == [[15, 15, 70], [3, 3, 14], [1, 1, 1], [1, 1, 5]]
    np.testing.assert_array_equal(part, parts_of(examples))
    other = parts_of(examples, seed=1)
    assert 10 < (part != other).sum() < 100
    big = parts_of(make({"a": 4, "b": 3}), 0.45, 0.5)
    assert np.bincount(big[:4]).tolist() == [2, 1, 1]  # train keeps one


def test_order_of_the_listing_does_not_matter() -> None:
    examples = make({"a": 40, "b": 30})
    shuffled = examples.take(np.random.default_rng(0).permutation(70))
    assert placed(shuffled, parts_of(shuffled)) == placed(examples, parts_of(examples))
    folds = draw_folds(shuffled, 5, seed=0, stream="t")
    assert placed(shuffled, folds) == placed(examples, draw_folds(examples, 5, seed=0, stream="t"))


def test_adding_images_moves_few_others() -> None:
    before = placed(old := make({"a": 100, "b": 50}), parts_of(old))
    moves = []
    for added in range(1, 21):
        after = placed(new := make({"a": 100 + added, "b": 50}), parts_of(new))
        moved = [name for name in before if before[name] != after[name]]
        assert all(name.startswith("a/") for name in moved)
        moves.append(len(moved))
        assert not [name for name in moved if {before[name], after[name]} == {0, 2}]  # never between test and train
    assert moves[0] <= 2
    assert moves[-1] <= 10


def test_folds_partition_each_class_evenly() -> None:
    examples = make({"a": 50, "b": 13, "c": 5})
    fold = draw_folds(examples, 5, seed=0, stream="t")
    for j, (low, high) in enumerate([(10, 10), (2, 3), (1, 1)]):
        sizes = np.bincount(fold[examples.member[:, j]], minlength=5)
        assert (sizes.min(), sizes.max()) == (low, high)
    many = make({f"class{k}": 7 for k in range(60)})
    sizes = np.bincount(draw_folds(many, 5, seed=0, stream="t"))
    assert sizes.max() < 1.25 * sizes.min()  # the remainders of all classes are not in the same folds


def test_adding_an_image_moves_at_most_one_per_fold() -> None:
    old, new = make({"a": 100, "b": 50}), make({"a": 101, "b": 50})
    before = placed(old, draw_folds(old, 5, seed=0, stream="t"))
    after = placed(new, draw_folds(new, 5, seed=0, stream="t"))
    assert sum(before[name] != after[name] for name in before) <= 4


def test_groups_stay_together() -> None:
    groups = [i // 2 for i in range(60)]  # pairs, of which one lies across the classes
    examples = make({"a": 31, "b": 29}, groups=groups)
    for part in (parts_of(examples), draw_folds(examples, 5, seed=3, stream="t")):
        assert (part[0::2] == part[1::2]).all()
        assert len(set(part.tolist())) > 2
    rest = examples.take(np.arange(10, 60))
    part = parts_of(rest)
    assert (part[0::2] == part[1::2]).all()


def several_labels(count: int, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    member = rng.random((count, 6)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0.03]
    return Examples("data", tuple(f"{i}.png" for i in range(count)), member, np.arange(count), tuple("abcdef"))


def test_several_labels_give_multi_hot_targets() -> None:
    examples = several_labels(1000)
    part = parts_of(examples)
    counts = np.stack([examples.member[part == p].sum(axis=0) for p in range(3)])  # (3, J)
    fractions = counts / counts.sum(axis=0)
    np.testing.assert_allclose(fractions[0], 0.15, atol=0.05)
    np.testing.assert_allclose(fractions[2], 0.70, atol=0.05)
    rarest = int(examples.member[:, 5].sum())  # comes first, so its sizes are exact
    assert counts[:2, 5].tolist() == [round(0.15 * rarest)] * 2
    unlabelled = ~examples.member.any(axis=1)
    assert (part[unlabelled] == 0).mean() == pytest.approx(0.15, abs=0.01)
    assert set(part.tolist()) == {0, 1, 2}
    fold = draw_folds(examples, 5, seed=0, stream="t")
    per_fold = np.stack([examples.member[fold == f].sum(axis=0) for f in range(5)])
    assert (per_fold.max(axis=0) <= 1.5 * per_fold.min(axis=0) + 3).all()


def test_rarest_label_is_placed_first() -> None:
    """All images have label a, five also b: if a were placed first, the parts of those five would be random."""
    member = np.ones((100, 2), dtype=bool)
    member[5:, 1] = False
    examples = Examples("data", tuple(map(str, range(100))), member, np.arange(100), tuple("ab"))
    for seed in range(10):
        part = parts_of(examples, 0.2, 0.2, seed=seed)
        assert np.bincount(part[:5], minlength=3).tolist() == [1, 1, 3]
        assert np.bincount(part).tolist() == [20, 20, 60]


@pytest.mark.parametrize("seed", range(20))
def test_rare_labels_are_in_every_part(seed: int) -> None:
    member = np.zeros((9, 3), dtype=bool)
    member[[0, 1, 2], 0] = True
    member[[2, 3, 4, 5], 1] = True
    member[[0, 1, 5], 2] = True  # nearly all of it shared with the first
    examples = Examples("data", tuple("123456789"), member, np.arange(9), tuple("abc"))
    part = parts_of(examples, seed=seed)
    for p in range(3):
        assert member[part == p].any(axis=0).all()


def test_labels_that_cannot_be_in_every_part_are_refused() -> None:
    """Each of four classes is in all images but one, so three different parts are impossible."""
    examples = Examples("data", tuple("1234"), ~np.eye(4, dtype=bool), np.arange(4), tuple("abcd"))
    with pytest.raises(ValueError, match=r"data: class '[abcd]' has 3 different images, but the labels they share"):
        parts_of(examples)


def test_too_few_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data: every class needs at least 3 different images .*'b' has 2, 'c' has 0"):
        parts_of(make({"a": 9, "b": 2, "c": 0}))
    with pytest.raises(ValueError, match=r"at least 5 different images \(for 5 folds.*'b' has 4"):
        draw_folds(make({"a": 9, "b": 4}), 5, seed=0, stream="t")
    with pytest.raises(ValueError, match="'b' has 2"):  # three files, two of which are copies
        parts_of(make({"a": 3, "b": 3}, groups=[0, 1, 2, 3, 3, 4]))
    with pytest.raises(ValueError, match="and 2 more classes"):
        parts_of(make({"a": 9} | {f"b{k}": 1 for k in range(7)}))
