"""Freed memory that is kept is there again without page faults."""

import subprocess
import sys
import textwrap

import pytest

COUNT = textwrap.dedent(
    """
    import resource, sys
    import torch
    from capsnet._allocator import keep_freed_memory

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.zeros(16 << 20)  # 64 MB, touched and freed
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    kept = keep_freed_memory() if sys.argv[1] == "keep" else None
    faults()
    print(kept, faults())
    """
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other allocators")
def test_kept_memory_is_there_again() -> None:
    def count(how: str) -> list[str]:
        done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True)
        return done.stdout.split()

    asked, few = count("keep")
    if asked == "False":
        pytest.skip("another C library than glibc")
    _, many = count("leave")
    assert int(few) < 100 < 1000 < int(many)
