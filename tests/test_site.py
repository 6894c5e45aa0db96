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
from html import unescape
from urllib.parse import unquote

import pytest

import llamalib
from lessons.frame import SERIES
from llamalib.load import ROOT

sys.path.insert(0, str(ROOT / "site"))

import build as site  # noqa: E402
from book import flow, maths, names, pages  # noqa: E402

# -- names of llamalib --


def notebook_of(*cells, tags=()):
    """Return a notebook with code cells c0, c1, …; the first has tags."""
    made = [
        dict(cell_type="code", id=f"c{i}", source=cell, metadata={})
        for i, cell in enumerate(cells)
    ]
    made[0]["metadata"] = {"tags": tags}
    return {"cells": made}


def test_a_taught_name_leads_to_its_cell():
    define = "import torch\n\n\ndef rms_norm(x):\n    return x"
    notebook = notebook_of(define, "load()", tags=["llamalib:model"])
    found = names.addresses({"x.ipynb": notebook})
    assert found["rms_norm"] == "x.html#c0"
    assert found["load"] == "names.html#load"
    found = names.addresses(pages.read_notebooks())
    assert found["rms_norm"] == "03_rmsnorm.html#c11"
    assert found["generate"].startswith("09_generate.html#")
    assert found["LLAMA_1B"].startswith("00_initialization.html#")
    taught = [name for name in found if "names.html" not in found[name]]
    assert len(taught) > 30


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


def test_the_page_of_names(tmp_path):
    """Each says what it is."""
    text = pages.Pages(tmp_path).names()
    rows = re.findall(r"^\| <span.*\|$", text, re.M)
    assert len(rows) == len(llamalib.__all__)
    for line in rows:
        name, about, link = map(str.strip, line.strip("| ").split(" | "))
        assert len(about.split()) > 1 and about[0] != "`", line


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
        parts[file[:2]] = re.findall(r'data-part="(\w+)"', text)
    assert {n: each for n, each in parts.items() if each} == {
        "01": ["tokens"],
        "04": ["rotation"],
        "05": ["attention"],
        "07": ["next"],
        "08": ["sampling"],
        "09": ["generate"],
    }


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


# -- the command --


def test_a_failed_build_leaves_the_last_site(tmp_path, monkeypatch):
    mark = tmp_path / "out" / "_static" / "pocket" / "model.safetensors"
    mark.parent.mkdir(parents=True)
    mark.touch()
    monkeypatch.setattr(site.pages, "Pages", BrokenPages)
    assert site.build_site(tmp_path / "out") != 0
    assert mark.exists() and [f.name for f in tmp_path.iterdir()] == ["out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text").touch()
    with pytest.raises(FileExistsError, match="holds something else"):
        site.build_site(tmp_path / "mine")


class BrokenPages(pages.Pages):
    """A site with a link that leads nowhere."""

    def write(self):
        (self.folder / "_static").mkdir()
        (self.folder / "_extra").mkdir()
        text = "# One\n\n[a](b.md#two)\n"
        (self.folder / "index.md").write_text(text)


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
    assert "03_rmsnorm.html#c11" in links_of(folder / "05_attention.html")
    training = links_of(folder / "appendix" / "A_training.html")
    assert "../05_attention.html#5a2af6f9" in training  # attention_weights
