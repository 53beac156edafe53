"""Fixtures of the data tests: real digits, and a temporary cache folder."""

from collections.abc import Iterator

import pytest

from capsnet.data import ArrayDataset, mnist


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPSNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CAPSNET_DATA", raising=False)
        yield


@pytest.fixture(scope="session")
def digits(own_cache: None) -> ArrayDataset:
    """The test split of MNIST."""
    return mnist("test")
