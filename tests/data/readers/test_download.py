"""Finding and downloading files: the order of the places, the hashes, the errors."""

import gzip
import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsnet.data.readers.download import Remote, find_or_fetch, named_folder
from tests.data.http_files import Answer, WebServer, dead_url, web_server

GOOD = b"the right bytes" * 10_000
HASH = f"md5:{hashlib.md5(GOOD).hexdigest()}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "toys"


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as running:
        yield running


def remote(*bases: str, name: str = "a.bin", hash: str | None = HASH) -> dict[str, Remote]:
    return {name: Remote(tuple(f"{base}{name}" for base in bases), hash)}


def test_file_is_downloaded_once(cache: Path, server: WebServer, capfd: pytest.CaptureFixture[str]) -> None:
    server.answers["a.bin"] = Answer(GOOD)
    files = remote(server.url)
    assert find_or_fetch("toys", files, None) == {"a.bin": cache / "a.bin"}
    assert (cache / "a.bin").read_bytes() == GOOD
    find_or_fetch("toys", files, None)
    assert server.asked == ["a.bin"]
    assert [path.name for path in cache.iterdir()] == ["a.bin"]
    assert capfd.readouterr() == ("", "")  # nothing is printed without a terminal


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_damaged_cache_is_fetched_again(cache: Path, server: WebServer, algorithm: str) -> None:
    server.answers["a.bin"] = Answer(GOOD)
    cache.mkdir(parents=True)
    (cache / "a.bin").write_bytes(GOOD[:-1] + b"?")
    known = f"{algorithm}:{hashlib.new(algorithm, GOOD).hexdigest()}"
    assert find_or_fetch("toys", remote(server.url, hash=known), None)["a.bin"].read_bytes() == GOOD
    assert server.asked == ["a.bin"]


def test_damaged_cache_is_never_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "a.bin").write_bytes(b"damaged")
    with pytest.raises(FileNotFoundError, match=r"a\.bin is in .*cache/toys with the wrong hash and could not be"):
        find_or_fetch("toys", remote(dead_url()), None)


def test_wrong_hash_leaves_nothing(cache: Path, server: WebServer) -> None:
    server.answers["a.bin"] = Answer(b"<html>log in to the hotel first</html>")
    with pytest.raises(ValueError, match=rf"toys: a\.bin was downloaded but is not .*{server.url}a.bin.*{HASH}"):
        find_or_fetch("toys", remote(server.url), None)
    assert list(cache.iterdir()) == []


def test_without_a_published_hash_the_file_is_taken(cache: Path, server: WebServer) -> None:
    server.answers["a.bin"] = Answer(b"anything")
    files = remote(server.url, hash=None)
    for _ in range(2):
        assert find_or_fetch("toys", files, None)["a.bin"].read_bytes() == b"anything"
    assert server.asked == ["a.bin"]


def test_login_page_is_refused_as_an_archive(cache: Path, server: WebServer) -> None:
    """Without a hash it would be used as the data."""
    page = Answer(b"<html>log in to the hotel first</html>")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zip_file:
        zip_file.writestr("1.mat", b"numbers")
    server.answers |= {"a.zip": page, "good/a.zip": Answer(archive.getvalue())}
    files = remote(server.url, name="a.zip", hash=None)
    with pytest.raises(ValueError, match=r"a\.zip was downloaded but is not what was published.*is no zip archive"):
        find_or_fetch("toys", files, None)
    assert list(cache.iterdir()) == []
    (cache / "a.zip").write_bytes(page.body)  # from before
    mirrors = remote(server.url, f"{server.url}good/", name="a.zip", hash=None)
    for _ in range(2):
        assert find_or_fetch("toys", mirrors, None)["a.zip"].read_bytes() == archive.getvalue()
    assert server.asked == ["a.zip", "a.zip", "good/a.zip"]


@pytest.mark.parametrize("first", ["dead", "missing", "damaged", "cut off"])
def test_second_mirror_is_used(cache: Path, server: WebServer, first: str) -> None:
    server.answers |= {
        "damaged/a.bin": Answer(b"wrong"),
        "cut off/a.bin": Answer(GOOD[:1000], headers={"Content-Length": str(len(GOOD))}),
        "good/a.bin": Answer(GOOD),
    }
    base = dead_url() if first == "dead" else f"{server.url}{first}/".replace(" ", "%20")
    server.answers["cut%20off/a.bin"] = server.answers["cut off/a.bin"]
    path = find_or_fetch("toys", remote(base, f"{server.url}good/"), None)["a.bin"]
    assert path.read_bytes() == GOOD
    assert [p.name for p in cache.iterdir()] == ["a.bin"]


def test_truncated_file_is_refused_even_without_a_hash(cache: Path, server: WebServer) -> None:
    server.answers["a.bin"] = Answer(GOOD[:1000], headers={"Content-Length": str(len(GOOD))})
    with pytest.raises(FileNotFoundError, match="could not be downloaded"):
        find_or_fetch("toys", remote(server.url, hash=None), None)
    assert list(cache.iterdir()) == []


def test_gz_is_not_unpacked_by_the_download(cache: Path, server: WebServer) -> None:
    packed = gzip.compress(GOOD)
    server.answers["a.gz"] = Answer(packed, headers={"Content-Encoding": "gzip"})
    files = remote(server.url, name="a.gz", hash=f"md5:{hashlib.md5(packed).hexdigest()}")
    assert find_or_fetch("toys", files, None)["a.gz"].read_bytes() == packed


def test_no_network_says_what_to_do(cache: Path, server: WebServer) -> None:
    base = dead_url()
    files = remote(base) | remote(base, name="b.bin")
    with pytest.raises(FileNotFoundError) as caught:
        find_or_fetch("toys", files, None)
    message = str(caught.value)
    assert f"put a.bin and b.bin into {cache}, or into a folder of your own and write toys:FOLDER" in message
    assert f"{base}a.bin" in message
    assert "refused" in message
    assert len(message) < 600  # one sentence, without the errors of three libraries
    with pytest.raises(FileNotFoundError, match=rf"404.*{server.url}a\.bin"):
        find_or_fetch("toys", remote(server.url), None)


def test_unwritable_cache_is_reported(cache: Path, server: WebServer) -> None:
    server.answers["a.bin"] = Answer(GOOD)
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(FileNotFoundError, match=r"could not be downloaded .*cache"):
        find_or_fetch("toys", remote(server.url), None)


def test_named_folder_is_the_only_place_searched(cache: Path, tmp_path: Path, server: WebServer) -> None:
    server.answers["a.bin.gz"] = Answer(GOOD)
    files = remote(server.url, name="a.bin.gz")
    find_or_fetch("toys", files, None)
    named, place = tmp_path / "own", tmp_path / "place"
    for folder in (named, place):
        folder.mkdir()
    (place / "a.bin.gz").write_bytes(b"elsewhere")
    with pytest.raises(FileNotFoundError, match=rf"{named}: expected a\.bin\.gz, found an empty folder"):
        find_or_fetch("toys", files, named, [place])
    (named / "a.bin").write_bytes(b"mine")  # unpacked, with any hash
    assert find_or_fetch("toys", files, named, [place]) == {"a.bin.gz": named / "a.bin"}
    with pytest.raises(FileNotFoundError, match=r"nowhere: expected .*, found nothing"):
        find_or_fetch("toys", files, tmp_path / "nowhere")


def test_system_folder_comes_before_cache_and_network(cache: Path, tmp_path: Path, server: WebServer) -> None:
    files = remote(server.url) | remote(server.url, name="b.bin")
    server.answers |= {"a.bin": Answer(GOOD), "b.bin": Answer(GOOD)}
    (tmp_path / "a.bin").write_bytes(b"system")
    places = [tmp_path / "nowhere", tmp_path]
    assert find_or_fetch("toys", files, None, places)["a.bin"] == cache / "a.bin"  # an incomplete set is not used
    (tmp_path / "b.bin").write_bytes(b"system")
    assert find_or_fetch("toys", files, None, places) == {name: tmp_path / name for name in files}


def test_named_folder_prefers_path_to_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_TOYS", "")
    assert named_folder(None, "CAPSNET_TOYS") is None
    monkeypatch.setenv("CAPSNET_TOYS", "/toys")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert named_folder(None, "CAPSNET_TOYS") == Path("/toys")
    assert named_folder("~/mine", "CAPSNET_TOYS") == Path("/home/somebody/mine")


def test_importing_the_readers_imports_no_network_code() -> None:
    code = "import sys; import capsnet.data; print([m for m in ('pooch', 'requests') if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
