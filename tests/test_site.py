"""The site: its parts, and the whole of it, built and opened in Chromium."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from html import unescape
from urllib.parse import unquote

import pytest
import torch
from safetensors.torch import load_file

import llamalib
from lessons.frame import SERIES
from lessons.theme import AMOUNT, COLOURS, GROUPS
from llamalib.load import ROOT
from tests.browser import chromium, elements, foreign, served, show, wait_for

SITE = ROOT / "site"
sys.path.insert(0, str(SITE))

from book import flow, maths, names, pages  # noqa: E402
from book.pocket import write_pocket  # noqa: E402

site = importlib.import_module("build")

# -- names of llamalib --


def notebook_of(*cells, tags=()):
    """Return a notebook with code cells c0, c1, …; the first has tags."""
    made = [
        dict(cell_type="code", id=f"c{i}", source=cell, metadata={})
        for i, cell in enumerate(cells)
    ]
    made[0]["metadata"] = {"tags": tags}
    return {"cells": made}


def test_a_name_leads_to_where_it_is_taught():
    define = "import torch\n\n\ndef rms_norm(x):\n    return x"
    notebook = notebook_of(define, "load()", tags=["llamalib:model"])
    found = names.addresses({"x.ipynb": notebook})
    assert found["rms_norm"] == "x.html#c0"
    assert found["load"] == "names.html#load"
    found = names.addresses(pages.read_notebooks())
    taught = [name for name in found if "names.html" not in found[name]]
    assert len(taught) > 30
    assert all(len(names.about(name).split()) > 1 for name in found)


def test_links_in_a_page():
    """To what the code calls, and to names in the text; not in headings."""
    call = f'{names.INPUT}<pre><span class="n">{{}}</span>'
    call += '<span class="p">(</span></pre></div>'
    word = '<code class="docutils literal notranslate"><span class="pre">'
    word += "{}</span></code>"
    body = f"<h2>{word.format('load')}</h2>{call.format('load')}"
    body += word.format("load(x)") + call.format("sample")
    body += word.format("sample") + word.format("x.load")
    notebook = notebook_of("load(1)", "def sample(x): ...")
    known = {"load": "names.html#load", "sample": "x.html#c9"}
    page = names.linked_page(body, notebook, known, "../")
    assert '<div id="c0" class="cell_input' in page
    assert page.count('href="../names.html#load"') == 2
    assert page.count('href="../x.html#c9"') == 1  # its own has none in code
    with pytest.raises(ValueError, match="2 cells of 1"):
        names.linked_page(body, notebook_of("load(1)"), known, "")


# -- formulas, the map, the Llama's parts --


def test_formulas():
    assert "<mfrac>" in maths.mathml(r"\frac{a}{b}")
    assert "⌈" in maths.mathml(r"\Big\lceil c \Big\rceil")
    assert 'form="prefix"' in maths.mathml(r"(-x)")
    assert "form" not in maths.mathml("(y)-x")
    assert "mspace" in maths.mathml(r"\ln p")
    assert "mspace" not in maths.mathml(r"\ln(p)")
    with pytest.raises(ValueError, match="in"):
        maths.mathml(r"\nothing{x}")


def test_the_map_leads_to_each_notebook():
    found = re.findall(r'<a xlink:href="(\S+)"', flow.picture())
    assert set(found) == {flow.page(notebook) for notebook in SERIES}
    steps = {box: each.file[:2] for box, each in flow.OPENS.items()}
    assert steps["rope"] == "04" and steps["norm 3"] == "03"
    assert steps["files"] == "00" and steps["sample"] == "08"


def test_the_llamas_parts_follow_the_widgets():
    """Six of the notebooks, each with its part."""
    for file, text in pages.sources().items():
        pattern = r'data-part=\\"(\w+)\\".*?needs JavaScript'
        found = re.findall(pattern, text)
        part = pages.PARTS.get(file)
        assert found == [part] * bool(part), file


def test_the_llamas_weights_are_the_pockets(tmp_path, pocket_folder):
    write_pocket(tmp_path / "pocket")
    found = load_file(tmp_path / "pocket" / "model.safetensors")
    expected = llamalib.load(pocket_folder, device="cpu").state_dict()
    assert expected.keys() - found.keys() == {"output.weight"}
    for name, weight in found.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, expected[name])


def test_the_llamas_colours_are_the_notebooks():
    script = (SITE / "llama.js").read_text(encoding="utf-8")
    found = dict(re.findall(r'([\w-]+): "(#[0-9A-F]{6})"', script))
    assert found == {name: COLOURS[name] for name in found}
    assert list(found.values())[:6] == list(GROUPS[:6])
    amount = json.loads(re.search(r"AMOUNT = (\[\[.*?\]\])", script)[1])
    stops = [AMOUNT(i / 3, bytes=True)[:3] for i in range(4)]
    assert torch.tensor(amount).sub(torch.tensor(stops)).abs().max() <= 1


# -- the command --


def test_a_failed_build_leaves_the_last_site(tmp_path, monkeypatch):
    """A link that leads nowhere stops the build."""
    mark = tmp_path / "out" / "_static" / "pocket" / "model.safetensors"
    mark.parent.mkdir(parents=True)
    mark.touch()
    broken = {"index.md": "# One\n\n[a](b.md#two)\n"}
    monkeypatch.setattr(site.pages, "sources", lambda: broken)
    assert site.build_site(tmp_path / "out") != 0
    assert mark.exists() and [f.name for f in tmp_path.iterdir()] == ["out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").touch()
    with pytest.raises(FileExistsError, match="holds something else"):
        site.build_site(tmp_path / "mine")


# -- the whole site, built once and opened in Chromium --


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build the site, without a network where the system lets us."""
    out = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "site/build.py", str(out)]
    alone = ["unshare", "-rn"]
    if shutil.which("unshare") and not subprocess.call([*alone, "true"]):
        command = alone + command
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def address(folder):
    with served(folder) as server:
        yield server.address


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


UNSET = """return [...document.querySelectorAll("merror, .math")]
  .filter(e => e.matches("merror") || !e.querySelector("math")).length"""
# What is wider than the window, unless a reader can scroll it there: also
# where a parent hides it.
WIDE = """const scrolls = e => e && e.tagName !== "ARTICLE" && (
    /auto|scroll/.test(getComputedStyle(e).overflowX)
    || scrolls(e.parentElement))
const shown = "html, article, article :not(input, svg *)"
const out = [...document.querySelectorAll(shown)].filter(e =>
  Math.max(e.getBoundingClientRect().right, e.scrollWidth)
  > window.innerWidth + 1 && !scrolls(e) && e.checkVisibility())
return out.slice(0, 3).map(e => e.outerHTML.slice(0, 80))"""


@pytest.mark.browser
@pytest.mark.parametrize(
    "width, theme",
    [(1440, "light"), (1440, "dark"), (900, "light"), (390, "dark")],
)
def test_every_page(folder, address, driver, width, theme):
    """No error, no formula unset, no other origin, no scrolling sideways.

    Each picture has words, and is dark in the dark theme.
    """
    found = sorted(folder.rglob("*.html"))
    assert len(found) > len(SERIES) * 2
    formulas, pictures = 0, []
    for path in found:
        name = path.relative_to(folder).as_posix()
        show(driver, f"{address}/{name}", width, theme)
        assert driver.get_log("browser") == [], name
        assert driver.execute_script(UNSET) == 0, name
        assert driver.execute_script(WIDE) == [], name
        assert foreign(driver, address) == [], name
        formulas += len(elements(driver, "math"))
        pictures += driver.execute_script(
            "return [...document.querySelectorAll('.cell_output img')].map("
            "e => [e.alt, getComputedStyle(e).filter])"
        )
    assert formulas > 1000 and len(pictures) > 100
    assert all(words for words, _ in pictures)
    assert all((f != "none") == (theme == "dark") for _, f in pictures)


def links_of(path):
    """Return the addresses that a page's links lead to."""
    found = re.findall(r'<a\b[^>]*?\bhref="([^"]+)"', path.read_text("utf-8"))
    return [unescape(each) for each in found]


@pytest.mark.browser
def test_every_link_within_the_site_answers(folder, address):
    """And the place in the page that it names is there."""
    asked, places = set(), set()
    for path in folder.rglob("*.html"):
        page = f"{address}/{path.relative_to(folder).as_posix()}"
        for link in links_of(path):
            url, _, place = urllib.request.urljoin(page, link).partition("#")
            if url.startswith(f"{address}/"):
                asked.add(url)
                places |= {(url, unquote(place))} if place else set()
    assert len(asked) > 60 and len(places) > 300
    for each in sorted(asked):
        with urllib.request.urlopen(each) as reply:
            assert reply.status == 200
    for url, place in places:
        text = (folder / url.removeprefix(f"{address}/")).read_text("utf-8")
        assert f'id="{place}"' in text or f"id='{place}'" in text, (url, place)
    books = [each for each in asked if each.endswith(".ipynb")]
    assert len(books) == len(pages.FILES)


@pytest.mark.browser
def test_names_lead_to_where_they_are_taught(folder):
    assert "03_rmsnorm.html#c11" in links_of(folder / "05_attention.html")
    training = links_of(folder / "appendix" / "A_training.html")
    assert "../05_attention.html#5a2af6f9" in training  # attention_weights


@pytest.mark.browser
def test_the_search_finds(address, driver):
    show(driver, f"{address}/search.html?q=softmax")
    words = r"divided by \sqrt{\mathrm{hd}}"  # a formula as its TeX
    xpath = f"//*[@id='search-results']//p[contains(., '{words}')]"
    wait_for(words, lambda: driver.find_elements("xpath", xpath), 60)


@pytest.mark.browser
def test_copy_buttons_are_at_the_code(address, driver):
    show(driver, f"{address}/03_rmsnorm.html")
    buttons = ".cell_input button.copybtn"
    found = wait_for("buttons", lambda: elements(driver, buttons), 60)
    assert len(found) == len(elements(driver, ".cell_input pre")) > 10
    assert not elements(driver, ".cell_output .copybtn")
