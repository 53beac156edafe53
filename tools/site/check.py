"""What a built site must not have: links to nothing, and anything that a browser would fetch from another host.

python -m tools.site.check build/site
"""

import argparse
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}
IN_CSS = re.compile(r"@import\s+[\"']?([^\"';)]+)|url\(\s*[\"']?([^\"')]+)")


class Reader(HTMLParser):
    """The links of a page, what it fetches, its anchors, and whether it asks the repository's host for its stars."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.counts_stars = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "link" and ("rel", "canonical") in attrs:  # the page's own address, which is not fetched
            return
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in FETCHED and value:
                self.fetched.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)
            elif (name, value) == ("data-md-component", "source"):  # the theme's script fetches for it
                self.counts_stars = True


def problems(site: Path, base: str = "/") -> list[str]:
    """One line for each wrong link and each foreign address. ``base`` is the site's path on its host."""
    read = {path: Reader(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in read.items():
        name = path.relative_to(site)
        found += [f"{name}: fetches {what} from another host" for what in page.fetched if foreign(what)]
        if page.counts_stars:
            found.append(f"{name}: fetches numbers of the repository from another host")
        for link in dict.fromkeys([*page.links, *page.fetched]):
            # those of the page for wrong addresses start at the root of the host
            local = link.replace(base, "./", 1) if path.name == "404.html" and link.startswith(base) else link
            if not foreign(link) and (why := broken(local, path, read)):
                found.append(f"{name}: {link} {why}")
    for path in site.rglob("*.css"):
        named = [one or other for one, other in IN_CSS.findall(path.read_text())]
        found += [f"{path.relative_to(site)}: fetches {what} from another host" for what in named if foreign(what)]
    return found


def foreign(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "mailto")


def broken(link: str, path: Path, read: dict[Path, Reader]) -> str:
    """Why a link does not work, or nothing."""
    parts = urlsplit(link)
    if parts.scheme:  # data:, javascript:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "does not exist"
    page = read.get(target)
    anchor = unquote(parts.fragment)
    return f"has no anchor {anchor}" if anchor and page and anchor not in page.anchors else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tools.site.check", description=__doc__)
    parser.add_argument("site", type=Path)
    wrong = problems(parser.parse_args().site.resolve())
    raise SystemExit("\n".join(wrong) if wrong else 0)
