"""What may be wrong in a built site, found in its files."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that fetch what they name, and the attribute that names it.
FETCH = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
FETCH |= {"source": "src", "video": "src", "audio": "src", "embed": "src"}
# A word in a page or a notebook: two letters or more.
WORD = re.compile(r"[^\W\d_]{2,}")
# What fetches from another origin: in a script, or in a style.
ELSEWHERE = re.compile(
    r"(?:(?:fetch|import|importScripts|Worker|open)\s*\(\s*|\.(?:src|href)"
    r"\s*=\s*|url\(|@import)\s*[\"'`]?((?:https?:)?//[^\"'`)]+)"
)


class Page(HTMLParser):
    """A page's links, the addresses it fetches, its ids, its words.

    Attributes:
        links: addresses that a reader may follow.
        fetched: addresses that a browser asks for by itself.
        text: of the article, without formulas.
        prose: the same without code.
    """

    def __init__(self, html: str):
        super().__init__()
        self.links, self.fetched, self.ids, self.parts = [], [], set(), []
        self.feed(html)
        article = html.partition("<article")[2].rpartition("</article>")[0]
        self.text = without("script|style|math", f"<article{article}")
        self.prose = without(".", without("code|pre", self.text))
        self.text = without(".", self.text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.update(filter(None, [found.get("id")]))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        address = found.get(FETCH.get(tag, ""))
        if address and found.get("rel") not in ("next", "prev", "canonical"):
            self.fetched.append(address)
        if found.get("class") == "llama":
            self.parts.append(found.get("data-part"))


def without(kinds: str, html: str) -> str:
    """Return HTML without elements of these kinds; with ".", its text."""
    if kinds == ".":
        return unescape(re.sub("<[^>]*>", " ", html))
    return re.sub(rf"<({kinds})\b.*?</\1>", " ", html, flags=re.S)


def read_pages(folder: Path) -> dict[str, Page]:
    """Return the pages of a built site by their path in it."""
    return {
        path.relative_to(folder).as_posix(): Page(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.html"))
    }


def problems(folder: Path, sources: dict[str, str]) -> list[str]:
    """Return what is wrong with a built site, one line each.

    sources: the text that each page must show, by the page's path.
    """
    pages = read_pages(folder)
    return [
        *missing(pages, sources),
        *unset(pages),
        *broken(folder, pages),
        *foreign(folder, pages),
    ]


def missing(pages, sources):
    """Find pages that are absent, or have fewer words than their source."""
    for name, source in sources.items():
        if name not in pages:
            yield f"{name}: the page is missing"
            continue
        found = len(WORD.findall(pages[name].text))
        expected = len(WORD.findall(plain(source)))
        if not found or found < expected:
            yield f"{name}: {found} words, but its source has {expected}"


def plain(source: str) -> str:
    """Return what is read of Markdown: no formulas, tags or addresses."""
    hidden = r"\A---.*?---|<!--.*?-->|```\{toctree.*?```"
    formulas = r"\$\$.+?\$\$|\$[^$\n]+\$"
    source = re.sub(f"{hidden}|{formulas}", " ", source, flags=re.S)
    source = re.sub(r"</?\w[^<>]*>|^```.*$", " ", source, flags=re.M)
    return re.sub(r"\]\([^)\s]*\)", "] ", source)


def unset(pages):
    """Find formulas that are still TeX."""
    tex = re.compile(r"\$[^$]*\\[^$]+\$|\\[a-zA-Z]+\{")
    for name, page in pages.items():
        for formula in tex.findall(page.prose):
            yield f"{name}: the formula {formula[:60]!r} is not set"


def broken(folder: Path, pages):
    """Find links and files within the site that lead nowhere."""
    for name, page in pages.items():
        for address in dict.fromkeys([*page.links, *page.fetched]):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            here = (folder / name).parent if parts.path else folder / name
            path = (here / unquote(parts.path)).resolve()
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file():
                yield f"{name}: the link {address} leads to no file"
                continue
            other = path.relative_to(folder.resolve()).as_posix()
            anchor = unquote(parts.fragment)
            if anchor and other in pages and anchor not in pages[other].ids:
                yield f"{name}: {other} has no place {anchor!r}"


def foreign(folder: Path, pages):
    """Find what a browser would fetch from another origin."""
    for name, page in pages.items():
        for address in page.fetched:
            if urlsplit(address).netloc:
                yield f"{name}: fetches {address} from another origin"
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".js", ".css", ".html"):
            name = path.relative_to(folder).as_posix()
            for address in ELSEWHERE.findall(path.read_text("utf-8")):
                yield f"{name}: fetches {address} from another origin"


def source_text(path: Path) -> str:
    """Return what a reader sees of a source: of a notebook, its cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(c["source"]) for c in json.loads(text)["cells"])
