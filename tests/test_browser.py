"""The notebooks in JupyterLab, as a reader uses them in a browser.

Run by `make test-browser`; needs chromium and chromedriver on the PATH
(Debian: apt-get install chromium chromium-driver).
"""

import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest
from PIL import Image

from llamalib.load import ROOT
from tests.browser import FAINT, chromium, elements, show, wait_for
from tools.notebooks import NOTEBOOKS as FOLDER
from tools.notebooks import all_notebooks

pytestmark = pytest.mark.browser

TOKEN = "for-this-test"
WORDS = "Run the notebook"  # where a widget has no kernel


def with_a_widget(path):
    return '"Play(' in path.read_text(encoding="utf-8")


NOTEBOOKS = [path for path in all_notebooks() if with_a_widget(path)]
CHAT, INDEX = FOLDER / "09_generate.ipynb", FOLDER / "index.ipynb"


@pytest.fixture(scope="module", params=["JupyterLab Light"])
def server(request, tmp_path_factory):
    """Open a copy with the command `lab`, as a reader who likes a theme."""
    home = tmp_path_factory.mktemp("home")
    places = {"DATA": "data", "CONFIG": "config"}
    env = {f"JUPYTER_{k}_DIR": str(home / v) for k, v in places.items()}
    env["JUPYTERLAB_SETTINGS_DIR"] = str(home / "settings")
    env["JUPYTERLAB_WORKSPACES_DIR"] = str(home / "workspaces")
    for plugin, setting in (
        ("apputils-extension/themes", {"theme": request.param}),
        # every cell is drawn, also outside the view
        ("notebook-extension/tracker", {"windowingMode": "none"}),
    ):
        name = f"settings/@jupyterlab/{plugin}.jupyterlab-settings"
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text(json.dumps(setting))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--no-browser", f"--port={port}"]
    flags += [f"--IdentityProvider.token={TOKEN}"]
    with open(home / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools", "lab"]
            + ["--work", str(home / "work"), "--", *flags],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env=os.environ | env,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{address}/api?token={TOKEN}")
                break
            except OSError:
                assert process.poll() is None, (home / "log").read_text()
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def driver(tmp_path):
    with chromium(tmp_path / "profile") as driver:
        yield driver


def click_menu(driver, menu, entry):
    """Click a menu at the top, then its entry."""

    def click(selector, text):
        wait_for(
            f"the menu entry {text}",
            lambda: [e for e in elements(driver, selector) if e.text == text],
        )[0].click()

    click(".lm-MenuBar-itemLabel", menu)
    click(".lm-Menu-itemLabel", entry)


PICTURE = """
const picture = document.querySelector(".widget-html-content img");
if (!picture || !picture.complete || !picture.naturalWidth) return null;
const canvas = document.createElement("canvas");
canvas.width = picture.naturalWidth;
canvas.height = picture.naturalHeight;
canvas.getContext("2d").drawImage(picture, 0, 0);
return canvas.toDataURL();
"""


def move(driver):
    """Move a control step by step; it may be at an end first."""
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    for selector, steps in (
        (".noUi-handle", [Keys.ARROW_RIGHT, *[Keys.ARROW_LEFT] * 2]),
        (".widget-dropdown select", [1, 2]),  # entries of the list
        (".widget-textarea textarea", [*" Paris"]),
        (".widget-checkbox input", [Keys.SPACE]),
        (".widget-text input", ["The sun", Keys.ENTER]),
    ):
        if found := elements(driver, selector):
            driver.execute_script("arguments[0].scrollIntoView()", found[0])
            for step in steps:
                if isinstance(step, int):
                    Select(found[0]).select_by_index(step)
                else:
                    found[0].send_keys(step)
                yield
            return
    raise AssertionError("the widget has no control that this test can move")


SHOWN = ".jp-OutputArea img"


def assert_described(driver):
    """Assert that each picture has words for readers who cannot see it."""
    words = [e.get_attribute("alt") or "" for e in elements(driver, SHOWN)]
    assert words and min(map(len, words)) > 10, words


def name(path):
    return path.relative_to(FOLDER).as_posix()


def open_notebook(server, driver, path, width=1300):
    """Open a notebook in a window of this width; run nothing."""
    address = f"{server}/lab/tree/{name(path)}?token={TOKEN}&reset"
    show(driver, address, width)
    wait_for("the notebook", lambda: elements(driver, ".jp-Notebook .jp-Cell"))


def open_and_run_all(server, driver, path, widget):
    """Open a notebook and run it until the selector `widget` appears."""
    open_notebook(server, driver, path)
    # before anything runs: the still picture, and no broken widget
    if path.stem != "index":  # it has no picture
        wait_for("pictures", lambda: elements(driver, SHOWN))
        assert_described(driver)
    assert not elements(driver, ".jupyter-widgets")
    words = lambda: WORDS in driver.page_source  # noqa: E731
    wait_for("the words below it", words, seconds=60)
    click_menu(driver, "Run", "Run All Cells")
    wait_for("the widget", lambda: elements(driver, widget))
    busy = "return [...document.querySelectorAll('.jp-InputPrompt')]"
    busy += ".some(each => each.textContent.includes('*'))"
    done = lambda: not driver.execute_script(busy)  # noqa: E731
    wait_for("the last cell", done)  # an appendix trains
    errors = elements(driver, '[data-mime-type*="stderr"], mjx-merror')
    assert [e.text for e in errors] == []
    if path.stem != "index":
        assert_described(driver)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_open_run_all_and_play(server, driver, path):
    live = ".widget-html-content img"
    open_and_run_all(server, driver, path, live)
    first = wait_for("a picture", lambda: driver.execute_script(PICTURE))
    for _ in move(driver):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if driver.execute_script(PICTURE) not in (None, first):
                return
            time.sleep(0.2)
    raise AssertionError("the picture did not follow the control")


def api(server, path, method="GET", data=None):
    """Ask JupyterLab's server for something; return its answer."""
    address = f"{server}/api/{path}?token={TOKEN}"
    body = data and json.dumps(data).encode()
    request = urllib.request.Request(address, body, method=method)
    with urllib.request.urlopen(request) as page:
        return json.loads(page.read() or "null")


def kill_kernel(kernel_id):
    """End a kernel's process as the system does when memory runs out."""
    (found,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if any(kernel_id in each for each in process.info["cmdline"] or ())
    )
    found.kill()


def shown(driver, selector):
    return [e for e in elements(driver, selector) if e.is_displayed()]


CONTROLS = ".widget-text input, .noUi-handle, .widget-button"
ICONS = """
return [...document.querySelectorAll(".jupyter-widgets")].filter(each =>
  each.checkVisibility() && getComputedStyle(each, "::before").content
    .includes("\\uf127") &&
  getComputedStyle(each, "::before").display !== "none").length;
"""


def assert_alone(driver, what):
    """Wait for the note without a kernel; no control is left, no icon."""
    note = lambda: shown(driver, ".note")  # noqa: E731
    (note,) = wait_for(f"the note {what}", note, seconds=60)
    assert WORDS in note.text
    assert not shown(driver, CONTROLS), what
    assert driver.execute_script(ICONS) == 0, what


@pytest.mark.parametrize("stem", ["06_feed_forward", "index"])
def test_a_widget_says_that_it_has_no_kernel(server, driver, stem):
    """It died, was shut down, or is of another day; the output stays."""
    path = FOLDER / f"{stem}.ipynb"
    live = ".widget-html-content img" if stem != "index" else ".widget-text"
    open_and_run_all(server, driver, path, live)
    assert shown(driver, CONTROLS) and not shown(driver, ".note")
    click_menu(driver, "File", "Save Notebook")
    wait_for("the save", lambda: not elements(driver, ".jp-mod-dirty"))
    sessions = api(server, "sessions")
    (session,) = (s for s in sessions if s["path"] == name(path))
    kill_kernel(session["kernel"]["id"])
    assert_alone(driver, "after its death")
    ok = ".jp-Dialog .jp-mod-accept"
    wait_for("the dialog", lambda: shown(driver, ok))[0].click()
    api(server, f"sessions/{session['id']}", "DELETE")
    open_notebook(server, driver, path)
    assert_alone(driver, "on the next day")
    assert "Error displaying widget" not in driver.page_source
    if stem == "index":
        assert "What is the capital of France?" in driver.page_source
    else:
        assert_described(driver)
    click_menu(driver, "Run", "Run All Cells")
    wait_for("the controls", lambda: shown(driver, CONTROLS))
    assert not shown(driver, ".note")
    click_menu(driver, "Kernel", "Shut Down Kernel")
    assert_alone(driver, "without a kernel")


@pytest.mark.parametrize("path", [CHAT, INDEX], ids=["09", "index"])
def test_a_chat_streams(server, driver, path):
    """A message after Enter, and a new conversation after a click."""
    from selenium.webdriver.common.keys import Keys

    def written():
        return "".join(each.text for each in elements(driver, ".widget-html"))

    open_and_run_all(server, driver, path, ".widget-html")
    assert "France" in written()
    (box,) = elements(driver, ".widget-text input")
    box.send_keys("Monday, Tuesday,", Keys.ENTER)
    wait_for("the days", lambda: "Wednesday" in written(), seconds=60)
    buttons = {e.text: e for e in elements(driver, "button")}
    wait_for("the end", buttons["send"].is_enabled, seconds=60)
    buttons["new conversation"].click()
    wait_for("an empty page", lambda: "Wednesday" not in written(), seconds=9)
    box.send_keys(Keys.ENTER)  # nothing
    time.sleep(1)
    box.send_keys("Monday, Tuesday,", Keys.TAB)  # leaving starts nothing
    time.sleep(1)
    assert "Tuesday" not in written() and buttons["send"].is_enabled()


CORNER = """
const picture = document.querySelector(".jp-OutputArea img");
const canvas = document.createElement("canvas");
const pen = canvas.getContext("2d");
pen.drawImage(picture, 0, 0);
return [...pen.getImageData(0, 0, 1, 1).data];
"""


@pytest.mark.parametrize("server", ["JupyterLab Dark"], indirect=True)
@pytest.mark.parametrize("stem", ["00_initialization", "09_generate"])
def test_the_dark_theme_is_legible(server, driver, stem):
    """Texts have contrast; saved pictures bring their own white paper."""
    open_notebook(server, driver, FOLDER / f"{stem}.ipynb")
    wait_for("pictures", lambda: elements(driver, SHOWN))
    wait_for("the text", lambda: elements(driver, ".jp-RenderedText pre"))
    time.sleep(2)  # formulas
    places = ".jp-RenderedHTMLCommon *, .jp-RenderedText pre"
    assert driver.execute_script(FAINT, places) == []
    assert driver.execute_script(CORNER) == [255, 255, 255, 255]


@pytest.mark.parametrize("server", ["JupyterLab Dark"], indirect=True)
def test_saved_pictures_are_dark_in_the_dark_theme(server, driver):
    """Before a cell is run, because `lab` signs what it copies."""
    open_notebook(server, driver, FOLDER / "04_rope.ipynb")
    for picture in wait_for("pictures", lambda: elements(driver, SHOWN)):
        driver.execute_script("arguments[0].scrollIntoView()", picture)
        seen = Image.open(io.BytesIO(picture.screenshot_as_png)).convert("L")
        values = seen.histogram()
        assert sum(values[:64]) > sum(values) / 2  # the paper


@pytest.mark.parametrize("server", ["JupyterLab Dark"], indirect=True)
def test_pictures_that_were_run_are_dark_in_the_dark_theme(server, driver):
    path = FOLDER / "03_rmsnorm.ipynb"
    open_and_run_all(server, driver, path, ".widget-html-content img")
    found = driver.execute_script(
        "return [...document.querySelectorAll('.jp-OutputArea img')]"
        ".map(e => getComputedStyle(e).filter)"
    )
    assert len(found) == 5
    assert set(found) == {"invert(0.9) hue-rotate(180deg)"}


@pytest.mark.parametrize("path", [INDEX], ids=["index"])
def test_the_explorer_is_in_the_index(server, driver, path):
    """It computes in JupyterLab's page, before a cell is run."""
    open_notebook(server, driver, path)
    (frame,) = wait_for(
        "the explorer", lambda: elements(driver, "iframe.llama-frame"), 60
    )
    still = "return document.querySelector('.llama-still').checkVisibility()"
    wait_for("the page", lambda: not driver.execute_script(still), 60)
    driver.execute_script("arguments[0].scrollIntoView()", frame)
    driver.switch_to.frame(frame)
    shown = "return !!window.llama?.explorers?.[0]?.trace"
    wait_for("recorded numbers", lambda: driver.execute_script(shown), 60)
    text = "return document.querySelector('[role=status]').textContent"
    assert "attends most to “␣France”" in driver.execute_script(text)
    change = "llama.explorers[0].set("
    change += "{model: 'pocket', prompt: 'Monday, it', station: 'rope'})"
    driver.execute_script(change)
    expected = "“␣it” at position 4: pair 1 is rotated by"
    wait_for(expected, lambda: expected in driver.execute_script(text), 30)
    assert not elements(driver, ".llama-error, .llama-notebook[href]")
    (button,) = elements(driver, ".llama-next")  # no form is sent in a frame
    button.click()
    added = "return llama.explorers[0].settings.next"
    wait_for("the next token", lambda: driver.execute_script(added), 30)
    # the frame is as high as its page: no scroll bar in it
    high = "return [document.body.offsetHeight, innerHeight]"

    def grown():
        page, window = driver.execute_script(high)
        return abs(page - window) < 3

    wait_for("the frame's height", grown, 10)
    driver.switch_to.default_content()


@pytest.mark.parametrize("path", [INDEX], ids=["index"])
def test_a_picture_stands_for_the_explorer(server, driver, path):
    """Where its page is not there, as at GitHub, a reader sees a picture."""
    move = lambda old, new: api(  # noqa: E731
        server, f"contents/{old}", "PATCH", {"path": new}
    )
    move("explorer.html", "away.html")
    try:
        open_notebook(server, driver, path)
        picture = "return document.querySelector('.llama-still img')"
        picture += "?.checkVisibility()"
        wait_for("a picture", lambda: driver.execute_script(picture), 60)
        time.sleep(3)
        assert driver.execute_script(picture)
    finally:
        move("away.html", "explorer.html")


LINES = """
return [...document.querySelectorAll(".jp-MarkdownCell p")].filter(
  each => !each.childElementCount && each.textContent.length > 150
).flatMap(paragraph => {
  const text = paragraph.firstChild, range = new Range(), lines = {};
  for (let i = 0; i < text.length; i++) {
    range.setStart(text, i);
    range.setEnd(text, i + 1);
    const top = Math.round(range.getBoundingClientRect().top);
    lines[top] = (lines[top] || 0) + 1;
  }
  return Object.values(lines).slice(0, -1);
});
"""
PLACES = """
return [...document.querySelectorAll(arguments[0])].map(
  each => each.getBoundingClientRect()).map(at => [at.left, at.right]);
"""


@pytest.mark.parametrize("width", [1440, 1280])
def test_text_has_lines_of_about_80_characters(server, driver, width):
    """Headings and tables begin where it does; code and pictures are wider."""

    def places(selector):
        return driver.execute_script(PLACES, selector)

    open_notebook(server, driver, FOLDER / "00_initialization.ipynb", width)
    wait_for("pictures", lambda: elements(driver, SHOWN))
    lines = wait_for("text", lambda: driver.execute_script(LINES))
    assert len(lines) >= 6 and max(lines) <= 95
    assert 65 <= sum(lines) / len(lines) <= 85
    text = places(".jp-MarkdownCell .jp-RenderedMarkdown > p")
    right = max(each[1] for each in text)
    for each in ("h1", "h2", "table"):
        found = places(f".jp-MarkdownCell .jp-RenderedMarkdown > {each}")
        assert {at[0] for at in found} == {text[0][0]}, each
        assert each == "table" or max(at[1] for at in found) <= right
    for each in (".jp-CodeCell .jp-InputArea-editor", SHOWN):
        assert max(at[1] for at in places(each)) > right + 200, each
