"""The site: its parts, and the whole of it, built and opened in Chromium."""

import importlib
import re
import shutil
import subprocess
import sys
import unicodedata
import urllib.request
from html import unescape
from urllib.parse import unquote

import pytest
import torch
from fontTools.ttLib import TTFont
from PIL import Image
from safetensors.torch import load_file

import llamalib
from llamalib.load import ROOT
from tests.browser import chromium, elements, foreign, served, show, wait_for
from tools import explorer, page_models
from tools.frame import SERIES

SITE = ROOT / "site"
sys.path.insert(0, str(SITE))

from book import (  # noqa: E402
    font,
    head,
    lines,
    maths,
    names,
    pages,
    pictures,
)

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
    notebook = notebook_of(define, "load()", tags=["llamalib:model.rms_norm"])
    found = names.addresses({"x.ipynb": notebook})
    assert found["rms_norm"] == "x.html#c0"
    assert found["load"] == "names.html#load"
    found = names.addresses(pages.read_notebooks())
    taught = [name for name in found if "names.html" not in found[name]]
    assert len(taught) > 20
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


# -- formulas --


def test_formulas():
    assert "<mfrac>" in maths.mathml(r"\frac{a}{b}")
    assert "⌈" in maths.mathml(r"\Big\lceil c \Big\rceil")
    assert 'form="prefix"' in maths.mathml(r"(-x)")
    assert "form" not in maths.mathml("(y)-x")
    assert "mspace" in maths.mathml(r"\ln p")
    assert "mspace" not in maths.mathml(r"\ln(p)")
    assert 'form="prefix"' in maths.mathml(r"(1,\,-x)")
    with pytest.raises(ValueError, match="in"):
        maths.mathml(r"\nothing{x}")


@pytest.mark.parametrize(
    "tex, text",
    [
        (r"\sqrt{\mathrm{hd}}", "√hd"),
        (r"QK^\top/\sqrt{2D}", "QKᵀ/√2D"),
        (r"\Theta_k=\theta^{-2k/\mathrm{hd}}", "Θₖ = θ^(−2k/hd)"),
        (r"\frac{x_j-\mu}{\sqrt{\sigma^2+1}}", "(xⱼ − μ)/√(σ² + 1)"),
        (r"\sum_{i=0}^{V-1}p_{t,\,i}", "∑ᵢ₌₀ⱽ⁻¹ p_(t,i)"),
        (r"\underbrace{2D}_{\text{norms}}", "2D (norms)"),
        (r"\hat x\cdot p_{\text{top}}", "x̂ · p_top"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "(1 2; 3 4)"),
    ],
)
def test_a_formula_as_text(tex, text):
    found = re.search('alttext="(.*?)"', maths.mathml(tex))[1]
    assert unicodedata.normalize("NFC", found) == text


@pytest.mark.browser
def test_the_font_has_what_formulas_need(tmp_path):
    page = maths.mathml(r"\sqrt{x}<\Theta+\mathbf{q}")
    font.write_font(tmp_path, [f"<p>Zz {page}</p>"])
    found = TTFont(tmp_path / font.FILE)
    assert {*map(ord, "√<Θ+𝐪𝑥")} <= found.getBestCmap().keys()
    assert not {*map(ord, "Zz∑")} & found.getBestCmap().keys()
    assert len(found.getGlyphOrder()) > len(found.getBestCmap())  # larger √
    assert "Open Font License" in found["name"].getDebugName(13)


# -- code, pictures, the head of a page --


def test_lines_of_code_keep_their_indent():
    """Only a single line of what code printed may break."""
    code = 'def f():\n    <span class="c1"># &lt;</span>\n'
    block = '<div class="{} notranslate"><div class="highlight"><pre>{}</pre>'
    found = lines.with_lines(block.format("highlight-ipython3", code))
    first, second = re.findall(r'<span class="line"(.*?)>(?!#)', found)
    assert (first, second) == ("", ' style="--in:4ch"')
    assert re.sub("<.*?>", "", found) == re.sub("<.*?>", "", code)
    printed = block.format("output stream highlight-myst-ansi", "1\n")
    assert lines.with_lines(printed).count('class="line"') == 1
    rows = printed.replace("1\n", "1\n2\n")
    assert lines.with_lines(rows) == rows


def test_pictures_are_loaded_when_they_are_near(tmp_path):
    """The map is at once, and scrolls to its first lit part."""
    cells = pages.read_notebooks()["05_attention.ipynb"]["cells"]
    outputs = (o for cell in cells for o in cell.get("outputs", ()))
    saved = ("".join(o.get("data", {}).get("text/html", "")) for o in outputs)
    picture = next(each for each in saved if "Map of the model" in each)
    once = pictures.with_files(picture, tmp_path, "../_images")
    (file,) = tmp_path.iterdir()
    assert f'src="../_images/{file.name}"' in once and "data:" not in once
    width, height = Image.open(file).size
    assert f'height="{860 * height / width:.0f}"' in once
    assert "scrollLeft=this.width*0.42-" in once and "lazy" not in once
    other = picture.replace("Map of the model", "Loss")
    page = pictures.with_files(other, tmp_path, "_images")
    assert 'loading="lazy"' in page and "scroll" not in page


def test_what_a_page_says_about_itself():
    """A picture needs an address that others can ask."""
    found = head.tags("05_attention", "<b>05</b>", "", "someone/some-name")
    aims = "After this notebook you can compute grouped-query attention"
    assert f'<meta name="description" content="{aims}' in found
    assert 'property="og:title" content="05"' in found
    image = re.search('og:image" content="(.*?)"', found)[1]
    assert (ROOT / image.split("/HEAD/")[1]).is_file()
    body = f'<div class="no-search"><p>{"get " * 20}</p></div><p>a cell</p>'
    body += f'<p>A "b" {"c " * 200}</p>'
    found = head.tags("names", "Names", body, "")
    assert 'name="description" content="A &quot;b&quot; c' in found
    assert "og:image" not in found and len(found) < 900


def test_links_to_colab_need_an_address(monkeypatch):
    """And no page says a password."""
    monkeypatch.setenv("LLAMA_PROJECT", "https://a:s3cret@github.com/o/n")
    known = pages.sources()
    monkeypatch.setenv("LLAMA_PROJECT", "")
    unknown = pages.sources()
    colab = "https://colab.research.google.com/github/o/n/blob/main/notebooks/"
    for file in pages.FILES:
        assert f"{colab}{file}" in known[file]
        assert "colab.research" not in unknown[file]
        assert (ROOT / "notebooks" / file).is_file()
    assert 'ADDRESS = \\"https://github.com/o/n\\"' in known[pages.SETUP]
    assert "Write the project's address into ADDRESS" in unknown[pages.SETUP]
    assert "<https://github.com/o/n>" in known["index.md"]
    assert not any("s3cret" in text for text in known.values())


def test_each_notebook_opens_its_station():
    """The ten of the main road, and the page of the explorer itself."""
    found = {}
    for file, text in pages.sources().items():
        for station in re.findall(r'data-station=\\?"(\w+)', text):
            assert file not in found, file
            found[file] = station
    assert found == pages.STATIONS and len(found) == 10
    assert '<section class="llama"' in pages.first_page()
    texts = {each["key"]: each for each in explorer.TEXTS["station"]}
    for file, station in found.items():
        assert texts[station]["notebook"] == file[:2]


def test_the_llamas_weights_are_the_pockets(tmp_path, pocket_folder):
    page_models.write_pocket(tmp_path / "pocket")
    found = load_file(tmp_path / "pocket" / "model.safetensors")
    expected = llamalib.load(pocket_folder, device="cpu").state_dict()
    assert expected.keys() - found.keys() == {"output.weight"}
    for name, weight in found.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, expected[name])


# -- the command --


@pytest.mark.parametrize(
    "sphinx", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_a_failed_build_leaves_the_last_site(tmp_path, monkeypatch, sphinx):
    """For Sphinx -W, a link that leads nowhere is an error."""
    if not sphinx:
        fails = "import sys; sys.exit('-W' in sys.argv)"
        command = [sys.executable, "-c", fails, "-m"]
        run = subprocess.run
        monkeypatch.setattr(
            subprocess, "run", lambda c, **how: run(command + c[2:], **how)
        )
    mark = tmp_path / "out" / "_static" / "explorer.css"
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

    Each picture has words and a size, and is dark in the dark theme.
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
        assert len(elements(driver, "meta[name=viewport]")) == 1, name
        said = len(elements(driver, "meta[name=description]"))
        assert said == 1 or name in ("search.html", "explorer.html"), name
        formulas += len(elements(driver, "math"))
        pictures += driver.execute_script(
            "return [...document.querySelectorAll('.cell_output img')].map("
            "e => [e.alt && e.width * e.height, getComputedStyle(e).filter])"
        )
    assert formulas > 1000 and len(pictures) > 80
    assert all(area for area, _ in pictures)
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
    found = " ".join(links_of(folder / "05_attention.html"))
    assert re.search(r"\b04_rope\.html#c\d+", found)
    heads = links_of(folder / "appendix" / "F_heads.html")
    assert "../names.html#attention_maps" in heads


def search(driver, address, words, found):
    """Return the results of a search, once they say what is found."""
    show(driver, f"{address}/search.html?q={words}")

    def text():
        results = driver.find_element("id", "search-results").text
        return results if found in results else ""

    return wait_for(found, text, 60)


@pytest.mark.browser
def test_the_search_finds(address, driver):
    """An excerpt has formulas as text, and no line of links."""
    search(driver, address, "softmax", "divided by √hd. The dot products")
    words = "05 · Attention After this notebook you can compute"
    found = search(driver, address, "attention", words)
    assert "Reading:" not in found
    found = search(driver, address, "download", "pages matching")
    assert "05 · Attention" not in found
    # the beginning of a name; its stem would be apply_rotari
    search(driver, address, "apply_rotary", "def apply_rotary_emb(")
    search(driver, address, "n_kv_heads", "config.n_kv_heads")
    search(driver, address, "xylophone", "Nothing found. Try fewer words")


# Code that a reader would scroll for, or that has a letter below its button.
HIDDEN = """return [...document.querySelectorAll(".cell pre:has(.line)")].filter(e => {
  const b = e.parentElement.querySelector(".copybtn")?.getBoundingClientRect()
  const range = document.createRange(), rects = []
  const texts = document.createTreeWalker(e, NodeFilter.SHOW_TEXT)
  while (b && texts.nextNode()) {
    range.selectNodeContents(texts.currentNode)
    if (range.toString().trim()) rects.push(...range.getClientRects())
  }
  return e.scrollWidth > e.clientWidth || rects.some(r => r.right > b.left
    && r.left < b.right && r.bottom > b.top && r.top < b.bottom)
}).map(e => e.textContent.slice(0, 80))"""


@pytest.mark.browser
def test_code_on_a_phone(address, driver):
    """Each line is in sight, and what is copied has its indent."""
    cells = names.code_cells(pages.read_notebooks()["05_attention.ipynb"])
    show(driver, f"{address}/05_attention.html", 390)
    buttons = ".cell_input button.copybtn"
    wait_for("buttons", lambda: elements(driver, buttons), 60)
    assert driver.execute_script(HIDDEN) == []
    code = driver.execute_script(
        "return [...document.querySelectorAll('.cell_input pre')].map("
        "e => e.textContent.trimEnd())"
    )
    assert code == [source for _, source, _ in cells]
    gap = driver.execute_script(
        "const [a, b] = document.querySelectorAll('.cell pre')"
        ";return b.getBoundingClientRect().top"
        " - a.getBoundingClientRect().bottom"
    )
    assert 0 < gap < 12


@pytest.mark.browser
def test_the_map_of_a_notebook_on_a_phone(address, driver):
    """It is wider than the window, with the lit part in sight."""
    lit = {"03_rmsnorm": 0.32, "08_sampling": 0.96, "01_tokenize": 0.13}
    for page, at in lit.items():
        show(driver, f"{address}/{page}.html", 390)
        width, left, seen = driver.execute_script(
            "const e = document.querySelector('.strip');"
            "return [e.firstChild.width, e.scrollLeft, e.clientWidth]"
        )
        assert width > 700 and left < at * width < left + seen


@pytest.mark.browser
def test_copy_buttons_are_at_the_code(address, driver):
    show(driver, f"{address}/03_rmsnorm.html")
    buttons = ".cell_input button.copybtn"
    found = wait_for("buttons", lambda: elements(driver, buttons), 60)
    assert len(found) == len(elements(driver, ".cell_input pre")) > 10
    assert not elements(driver, ".cell_output .copybtn")
