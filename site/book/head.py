"""What a page says about itself to search engines and in a shared link."""

import re
from html import escape, unescape
from textwrap import shorten

from tools.frame import SERIES

SITE = "Llama, notebook by notebook"
PICTURE = (
    "https://raw.githubusercontent.com/{}/HEAD/.github/explorer-light.png",
    "A prompt and every step of a Llama with its numbers",
)
AIMS = {each.file.removesuffix(".ipynb"): each.aims for each in SERIES}


def tags(page: str, title: str, body: str, name: str) -> str:
    """Return the tags of a page.

    name: OWNER/NAME of the project on GitHub, or "".
    """
    about = dict(site_name=SITE, title=words(title))
    about["type"] = "website" if page == "index" else "article"
    about["description"] = description(page, words(title), body)
    if name:
        about["image"] = PICTURE[0].format(name)
        about["image:alt"] = PICTURE[1]
    found = {f'property="og:{key}"': text for key, text in about.items()}
    found['name="description"'] = about["description"]
    lines = (f'<meta {k} content="{escape(v)}">' for k, v in found.items())
    return "\n    ".join(lines)


def description(page: str, title: str, body: str) -> str:
    """Return a sentence about a page: of a notebook, what it is good for."""
    if page in AIMS:
        return f"After this notebook you can {AIMS[page]}"
    if page.startswith("solutions/"):
        return f"{title}: the code of all exercises."
    body = re.sub(r'<div class="no-search.*?</div>', "", body, flags=re.S)
    found = map(words, re.findall(r"<p>(.*?)</p>", body, re.S))
    first = (text for text in found if len(text) > 40)  # no table's cell
    return shorten(next(first, f"{title}. {SITE}"), 200, placeholder=" …")


def words(html: str) -> str:
    """Return the text of a piece of HTML."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())
