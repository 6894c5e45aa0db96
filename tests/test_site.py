"""The site: its parts with a failing twin each, and the whole in Chromium."""

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from urllib.parse import unquote, urlsplit

import pytest

from lessons.frame import SERIES
from llamalib.load import ROOT

sys.path.insert(0, str(ROOT / "site"))

import build as site  # noqa: E402
from book import check, flow, marks, maths, names, pages  # noqa: E402

# -- names of llamalib --


def found_in(*cells, tags=()):
    """Return {cell: [(line, column, full name)]} of a notebook's code."""
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"c{i}",
                "metadata": {"tags": tags if i == 0 else []},
                "source": cell.splitlines(keepends=True),
            }
            for i, cell in enumerate(cells)
        ]
    }
    links = names.read_series({"x.ipynb": notebook}, names.Package())
    links = links["x.ipynb"]
    places = {
        key: [(line, column, name.anchor) for line, column, name in found]
        for key, (_, found) in links.cells.items()
    }
    return places, links.words


NORM = "llamalib.model.rms_norm"


@pytest.mark.parametrize(
    "code, found",
    [
        ("from llamalib import rms_norm", [(1, 21, NORM)]),
        ("import llamalib\ny = llamalib.rms_norm(x)", [(2, 13, NORM)]),
        ("import llamalib as l\nl.rms_norm", [(2, 2, NORM)]),
        ("é, ü = llamalib.rms_norm", []),
        ("import llamalib\né = llamalib.rms_norm", [(2, 13, NORM)]),
        ("def rms_norm(x): ...\nrms_norm(1)", []),
        ("from torch import rms_norm\nrms_norm(1)", []),
        ("x.rms_norm, rms_norm", []),
    ],
)
def test_names_in_code(code, found):
    """They are llamalib's only if they come from there."""
    places, _ = found_in(code)
    assert places["c0"] == found


def test_a_taught_name_leads_to_its_cell():
    define = "def rms_norm(x):\n    return x"
    _, words = found_in(define, "rms_norm(1)", tags=["llamalib:model"])
    assert words["rms_norm"].address == "x.html#c0"
    places, words = found_in(define, "rms_norm(1)")
    assert places["c1"] == [] and "rms_norm" not in words


def test_every_public_call_is_found_where_it_is_taught():
    links = names.read_series(pages.read_notebooks(), names.Package())
    words = links["07_lm_head.ipynb"].words
    assert words["rms_norm"].address == "03_rmsnorm.html#c11"
    assert words["llamalib.generate"].address.startswith("09_generate.html#")


def test_the_page_of_names(tmp_path):
    """Each leads to a cell, if it is not exported, and says what it is."""
    made = pages.Pages(tmp_path)
    rows = re.findall(r"^\| <span.*\|$", made.names(), re.M)
    assert len(rows) > 200
    for line in rows:
        name, about, link = map(str.strip, line.strip("| ").split(" | "))
        assert len(about.split()) > 1 and about[0] != "`", line
        is_a_door = re.search(r'"llamalib\.(load|config|save|fetch)\.', name)
        assert "#" in link or is_a_door, line


HTML = '<pre><span></span><span class="n">y</span> <span>a&lt;</span>\n'
HTML += '<span class="n">rms_norm</span></pre>'


def test_links_in_highlighted_code():
    name = names.Package().names[NORM]
    linked = marks.linked_code(HTML, [(2, 0, name)], "../")
    assert linked.count("<a ") == 1
    assert '">rms_norm</a></span></pre>' in linked
    assert f'href="../names.html#{NORM}"' in linked
    assert marks.linked_code(HTML, [], "") == HTML


CELL = '<div class="cell_input docutils container">\n'
CELL += '<div class="highlight-python"><div class="highlight"><pre>{}</pre>'


def test_names_in_the_text():
    """But none in a heading, in another link or with another word."""
    word = '<code class="docutils literal notranslate"><span class="pre">'
    word += "{}</span></code>"
    words = {"rms_norm": names.Package().names[NORM]}
    for text in ("rms_norm", "rms_norm(x, w)"):
        linked = marks.linked_words(word.format(text), words, "")
        assert linked.startswith("<a ")
    for text in ("rms", "x.rms_norm"):
        assert marks.linked_words(word.format(text), words, "")[1] == "c"
    heading = f"<h2>{word.format('rms_norm')}</h2>"
    assert marks.linked_words(heading, words, "") == heading


# -- formulas --


def test_formulas():
    assert "<mfrac>" in maths.mathml(r"\frac{a}{b}")
    assert "⌈" in maths.mathml(r"\Big\lceil c \Big\rceil")
    assert 'form="prefix"' in maths.mathml(r"(-x)")
    assert "form" not in maths.mathml("(y)-x")
    assert "mspace" in maths.mathml(r"\ln p")
    assert "mspace" not in maths.mathml(r"\ln(p)")


# -- the map --


def test_the_map_has_each_notebook():
    """And every step leads to a notebook that is about it."""
    picture = flow.picture()
    for notebook in SERIES:
        address = notebook.file.replace(".ipynb", ".html")
        assert picture.count(f'<a href="{address}" aria-label="') >= 2
    steps = {box: each.file[:2] for box, each in flow.OPENS.items()}
    assert steps["rope"] == "04" and steps["norm 3"] == "03"
    assert steps["files"] == "00" and steps["sample"] == "08"


# -- sources --


def with_a_widget():
    return {
        file
        for file, notebook in pages.read_notebooks().items()
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if "".join(output.get("data", {}).get("text/plain", "")).startswith(
            ("Play(", "Stream(")
        )
    }


def test_the_llamas_parts_follow_the_widgets(tmp_path):
    """Six of the notebooks, each with its part and the widget's prompt."""
    made, parts = pages.Pages(tmp_path), {}
    assert set(pages.PARTS) <= with_a_widget()
    for file in pages.NOTEBOOKS:
        text = "".join(
            "".join(cell["source"])
            for cell in made.page(file)["cells"]
            if cell["cell_type"] == "markdown"
        )
        parts[file[:2]] = check.Page(text).parts
    assert {n: each for n, each in parts.items() if each} == {
        "01": ["tokens"],
        "04": ["rotation"],
        "05": ["attention"],
        "07": ["next"],
        "08": ["sampling"],
        "09": ["generate"],
    }


def test_the_prompt_is_the_widgets():
    notebooks = pages.read_notebooks()
    prompts = ("05", "If you travel"), ("07", "The capital"), ("09", "Once")
    for number, prompt in prompts:
        file = next(f for f in pages.PARTS if f.startswith(number))
        section = pages.section(notebooks[file], file)
        assert f'data-prompt="{prompt}' in section
        assert "needs JavaScript" in section  # until the script replaces it
    code = [
        "".join(cell["source"]) for cell in notebooks["04_rope.ipynb"]["cells"]
    ]  # whose widget does not say its text: llama.js knows it
    assert any('\nprompt = "The capital of France is"' in c for c in code)
    assert '"The capital of France is"' in (ROOT / "site/llama.js").read_text()


def test_a_page_leads_to_the_project(tmp_path, monkeypatch):
    """A notebook alone does not run."""
    monkeypatch.delenv("LLAMA_PROJECT", raising=False)
    made = pages.Pages(tmp_path)
    assert "Get it from whoever gave you this." in made.first_page()
    monkeypatch.setenv("LLAMA_PROJECT", "https://example.org/llama")
    assert "from <https://example.org/llama>." in made.first_page()
    for file, up in (("05_attention.ipynb", ""), (APPENDIX, "../")):
        first = made.page(file)["cells"][0]["source"]
        assert f'<a href="{up}index.html#run-it-yourself">' in first
        assert ('href="#llama"' in first) == (file in pages.PARTS)


APPENDIX = "appendix/F_heads.ipynb"


def test_links_lead_into_the_site(tmp_path):
    made, start = pages.Pages(tmp_path), "notebooks/appendix/A_training.ipynb"
    for link, page in (
        ("../index.ipynb", "../index.md"),
        ("../solutions/A_training.py", "../solutions/A_training.md"),
        ("B_quantization.ipynb#x", "B_quantization.ipynb#x"),
        ("../../data/README.md", "../data.md"),
        ("https://arxiv.org/abs/1", "https://arxiv.org/abs/1"),
        ("../../LICENSE", "../files/LICENSE"),
    ):
        assert made.linked(f"[a]({link}) `](b)`", start) == (
            f"[a]({page}) `](b)`"
        )
    assert (tmp_path / "files" / "LICENSE").exists()
    with pytest.raises(ValueError, match="leads to no file"):
        made.linked("[a](../none.ipynb)", start)


# -- what may be wrong in a built site --

GOOD = """<link rel="stylesheet" href="a.css"><article><h1 id="one">One two
</h1><p>three <a href="b.html#two">b</a> <a href="https://arxiv.org">x</a>
<code>$LLAMA_DIR \\n</code></p></article>"""


@pytest.fixture
def built(tmp_path):
    """A site of two pages without a fault."""
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text('<article id="two">One two</article>')
    (tmp_path / "a.css").write_text("p { background: url(a.html) }")
    sources = {
        "a.html": "# One two\n\nthree LLAMA DIR $x_i$",
        "b.html": "one two",
    }
    assert check.problems(tmp_path, sources) == []
    return tmp_path, sources


@pytest.mark.parametrize(
    "file, old, new, problem",
    [
        ("a.html", "three", "", "4 words, but its source has"),
        ("b.html", "One two", "", "b.html: 0 words"),
        ("a.html", "b.html#two", "c.html", "c.html leads to no file"),
        ("a.html", "b.html#two", "b.html#x", "b.html has no place 'x'"),
        ("a.html", "a.css", "b.css", "b.css leads to no file"),
        ("a.html", "a.css", "https://cdn.org/a.css", "another origin"),
        ("a.html", "<p>", '<img src="//cdn.org/a.png">', "another origin"),
        ("a.html", "<p>", "<p>$\\frac{a}{b}$", "is not set"),
        ("a.css", "a.html", "https://cdn.org/a.png", "another origin"),
    ],
)
def test_a_fault_in_a_page_is_found(built, file, old, new, problem):
    folder, sources = built
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    (found,) = check.problems(folder, sources)
    assert problem in found


def test_a_missing_page_is_found(built):
    folder, sources = built
    sources["c.html"] = "one"
    assert check.problems(folder, sources) == ["c.html: the page is missing"]


def test_a_script_that_fetches_from_elsewhere_is_found(built):
    folder, sources = built
    (folder / "a.js").write_text('let svg = "http://www.w3.org/2000/svg"')
    assert check.problems(folder, sources) == []
    (folder / "a.js").write_text('fetch("https://cdn.org/x.json")')
    assert "a.js: fetches" in check.problems(folder, sources)[0]


# -- the command --


def test_a_failed_build_leaves_the_last_site(tmp_path, monkeypatch):
    mark = tmp_path / "out" / "_static" / "pocket" / "model.safetensors"
    mark.parent.mkdir(parents=True)
    mark.touch()

    def fail(sources, out):
        (out / "half").touch()
        raise RuntimeError("1 problem in the site")

    monkeypatch.setattr(site, "make", fail)
    with pytest.raises(RuntimeError):
        site.build_site(tmp_path / "out")
    assert mark.exists() and [f.name for f in tmp_path.iterdir()] == ["out"]


# -- the whole site, built once and opened in Chromium --


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build the site, without a network where the system lets us."""
    out = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "site/build.py", str(out)]
    if alone := no_network():
        command = [*alone, *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "python -m http.server" in done.stdout
    return out


def no_network():
    """Return a prefix that runs a command without a network, or nothing."""
    prefix = ["unshare", "-rn"]
    if not shutil.which(prefix[0]):
        return []
    tried = subprocess.run([*prefix, "true"], capture_output=True)
    return [] if tried.returncode else prefix


@pytest.fixture(scope="module")
def address(folder):
    """Serve the site on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    from selenium import webdriver

    found = map(
        shutil.which, ("chromium", "chromium-browser", "google-chrome")
    )
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, found))
    profile = tmp_path_factory.mktemp("profile")
    flags = "headless=new no-sandbox disable-gpu disable-dev-shm-usage "
    flags += "no-first-run disable-background-networking disable-sync "
    flags += f"disable-component-update user-data-dir={profile}"
    for flag in flags.split():
        options.add_argument(f"--{flag}")
    log = {"browser": "ALL", "performance": "ALL"}
    options.set_capability("goog:loggingPrefs", log)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    driver.get("about:blank")
    driver.get_log("performance")  # of the page that Chromium opens with
    yield driver
    driver.quit()


def show(driver, address, width=1440, theme="light"):
    """Open a page in a window of this width, in a theme."""
    size = dict(width=width, height=900, deviceScaleFactor=1, mobile=False)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": theme}
    media = {"features": [scheme]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get(address)


def requested(driver) -> set[str]:
    """Return the addresses that the page asked for."""
    events = [
        json.loads(entry["message"])["message"]
        for entry in driver.get_log("performance")
    ]
    sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
    return {event["params"]["request"]["url"] for event in sent}


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
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page(folder, address, driver, width, theme):
    """No error, no formula unset, no other origin, no scrolling sideways."""
    found = sorted(folder.rglob("*.html"))
    assert len(found) > len(SERIES) * 2
    formulas = 0
    for path in found:
        name = path.relative_to(folder).as_posix()
        show(driver, f"{address}/{name}", width, theme)
        assert driver.get_log("browser") == [], name
        assert driver.execute_script(UNSET) == 0, name
        assert driver.execute_script(WIDE) == [], name
        urls = requested(driver)
        ours = address, "data:"
        assert [u for u in urls if not u.startswith(ours)] == [], name
        count = "return document.querySelectorAll('math').length"
        formulas += driver.execute_script(count)
    assert formulas > 1000


@pytest.mark.browser
def test_every_width(address, driver):
    """The theme changes at some: no page is cut off between them."""
    for width in range(320, 1500, 100):
        for name in ("index", "names", "05_attention"):
            show(driver, f"{address}/{name}.html", width)
            assert driver.execute_script(WIDE) == [], (name, width)


@pytest.mark.browser
def test_every_link_within_the_site_answers(folder, address):
    asked = set()
    for name, page in check.read_pages(folder).items():
        for link in page.links:
            parts = urlsplit(urllib.request.urljoin(f"{address}/{name}", link))
            if parts.netloc == urlsplit(address).netloc:
                asked.add(parts._replace(fragment="").geturl())
    assert len(asked) > 60
    for each in sorted(asked):
        with urllib.request.urlopen(each) as reply:
            assert reply.status == 200
    books = [unquote(each) for each in asked if each.endswith(".ipynb")]
    assert len(books) == len(pages.NOTEBOOKS)


@pytest.mark.browser
def test_the_search_finds(address, driver):
    show(driver, f"{address}/search.html?q=rotary")
    found = wait_for(driver, "#search-results li a")
    assert "RoPE" in " ".join(each.text for each in found)
    show(driver, f"{address}/search.html?q=softmax")
    words = r"divided by \sqrt{\mathrm{hd}}"  # a formula as its TeX
    xpath = f"//*[@id='search-results']//p[contains(., '{words}')]"
    assert wait_for(driver, xpath, "xpath")


def wait_for(driver, selector, kind="css selector"):
    from selenium.webdriver.support.ui import WebDriverWait

    def found(driver):
        return driver.find_elements(kind, selector)

    return WebDriverWait(driver, 60).until(found)


@pytest.mark.browser
def test_copy_buttons_copy_the_code(address, driver):
    from selenium.webdriver import ActionChains

    show(driver, f"{address}/03_rmsnorm.html")
    buttons = wait_for(driver, "button.copybtn")
    code = driver.find_elements("css selector", ".cell_input pre")
    outputs = driver.find_elements("css selector", ".cell_output .copybtn")
    assert len(buttons) >= len(code) > 10 and outputs == []
    (block,) = driver.find_elements("css selector", "#c11 pre")
    (button,) = driver.find_elements("css selector", "#c11 .copybtn")
    allowed = {"permissions": ["clipboardReadWrite"]}
    driver.execute_cdp_cmd("Browser.grantPermissions", allowed)
    hand = ActionChains(driver).move_to_element(block)  # shows the button
    hand.move_to_element(button).click().perform()
    wait_for(driver, "#c11 .copybtn.success")
    copied = driver.execute_async_script(
        "navigator.clipboard.readText().then(arguments[0])"
    )
    assert copied == block.get_attribute("textContent").rstrip("\n")


@pytest.mark.browser
def test_names_lead_to_where_they_are_taught(folder):
    book = check.read_pages(folder)
    assert "03_rmsnorm.html#c11" in book["05_attention.html"].links
    training = book["appendix/A_training.html"].links
    assert "../05_attention.html#5a2af6f9" in training  # attention_weights
