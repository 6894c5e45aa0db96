"""The notebooks in JupyterLab, as a reader uses them in a browser.

Run by `make test-browser`; needs chromium and chromedriver on the PATH
(Debian: apt-get install chromium chromium-driver).
"""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from lessons import lab
from lessons.notebooks import all_notebooks
from llamalib.load import ROOT
from tests.browser import FAINT, chromium, elements, wait_for

pytestmark = pytest.mark.browser

TOKEN = "for-this-test"
# The settings of `make lab`, and every cell is drawn, also outside the view.
OURS = lab.SETTINGS / "overrides.json"
SETTINGS = json.loads(OURS.read_text(encoding="utf-8"))
SETTINGS |= {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}
}


def with_a_widget(path):
    return '"Play(' in path.read_text(encoding="utf-8")


NOTEBOOKS = [path for path in all_notebooks() if with_a_widget(path)]
STREAMS = [
    ROOT / "notebooks" / n for n in ("09_generate.ipynb", "index.ipynb")
]


@pytest.fixture(scope="module", params=["JupyterLab Light"])
def server(request, tmp_path_factory):
    """Start JupyterLab on copies of the notebooks, in a theme."""
    folder = tmp_path_factory.mktemp("lab")
    for path in {*NOTEBOOKS, *STREAMS}:
        shutil.copy(path, folder)
    settings = tmp_path_factory.mktemp("settings")
    theme = {"@jupyterlab/apputils-extension:themes": {"theme": request.param}}
    (settings / "overrides.json").write_text(json.dumps(SETTINGS | theme))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(settings / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser"]
            + [f"--port={port}", f"--IdentityProvider.token={TOKEN}"]
            + lab.lab_flags(folder, settings),
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{address}/api?token={TOKEN}")
                break
            except OSError:
                assert process.poll() is None, (settings / "log").read_text()
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
    for selector, text in (
        (".lm-MenuBar-itemLabel", menu),
        (".lm-Menu-itemLabel", entry),
    ):
        wait_for(
            f"the menu entry {text}",
            lambda: [e for e in elements(driver, selector) if e.text == text],
        )[0].click()


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


def open_and_run_all(server, driver, path, widget):
    """Open a notebook and run it until the selector `widget` appears."""
    driver.get(f"{server}/lab/tree/{path.name}?token={TOKEN}&reset")
    wait_for("the notebook", lambda: elements(driver, ".jp-Notebook .jp-Cell"))
    # before anything runs: the still picture, and no broken widget
    if path.stem != "index":  # it has no picture
        wait_for("pictures", lambda: elements(driver, SHOWN))
        assert_described(driver)
    assert not elements(driver, ".jupyter-widgets")
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


def test_a_saved_widget_is_there_on_the_next_day(server, driver):
    """After a save and without its kernel a widget still has its picture."""
    (path,) = (p for p in NOTEBOOKS if p.stem.startswith("08"))
    live = ".widget-html-content img"
    open_and_run_all(server, driver, path, live)
    click_menu(driver, "File", "Save Notebook")
    wait_for("the save", lambda: not elements(driver, ".jp-mod-dirty"))
    with urllib.request.urlopen(
        f"{server}/api/sessions?token={TOKEN}"
    ) as page:
        sessions = json.load(page)
    for each in sessions:
        address = f"{server}/api/sessions/{each['id']}?token={TOKEN}"
        request = urllib.request.Request(address, method="DELETE")
        urllib.request.urlopen(request)
    driver.get(f"{server}/lab/tree/{path.name}?token={TOKEN}&reset")
    wait_for("the picture", lambda: elements(driver, live), seconds=60)
    assert "Error displaying widget" not in driver.page_source
    assert_described(driver)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_prompt_streams(server, driver, path):
    open_and_run_all(server, driver, path, ".widget-html")
    (box,) = elements(driver, ".widget-text input")
    box.clear()
    box.send_keys("Monday, Tuesday,")
    (go,) = (e for e in elements(driver, "button") if e.text == "continue")
    go.click()
    days = "Monday, Tuesday, Wednesday"
    shown = lambda: any(  # noqa: E731
        days in each.text for each in elements(driver, ".widget-html")
    )
    wait_for("the days", shown)


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
    driver.get(f"{server}/lab/tree/{stem}.ipynb?token={TOKEN}&reset")
    wait_for("pictures", lambda: elements(driver, SHOWN))
    wait_for("the text", lambda: elements(driver, ".jp-RenderedText pre"))
    time.sleep(2)  # formulas
    places = ".jp-RenderedHTMLCommon *, .jp-RenderedText pre"
    assert driver.execute_script(FAINT, places) == []
    assert driver.execute_script(CORNER) == [255, 255, 255, 255]


@pytest.mark.parametrize("server", ["JupyterLab Dark"], indirect=True)
def test_pictures_that_were_run_are_dark_in_the_dark_theme(server, driver):
    path = ROOT / "notebooks" / "03_rmsnorm.ipynb"
    open_and_run_all(server, driver, path, ".widget-html-content img")
    found = driver.execute_script(
        "return [...document.querySelectorAll('.jp-OutputArea img')]"
        ".map(e => getComputedStyle(e).filter)"
    )
    assert len(found) > 5
    assert set(found) == {"invert(0.9) hue-rotate(180deg)"}
