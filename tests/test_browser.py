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
    from selenium import webdriver

    names = "chromium", "chromium-browser", "google-chrome"
    chromium = next(filter(None, map(shutil.which, names)), None)
    chromedriver = shutil.which("chromedriver")
    assert chromium and chromedriver, "install chromium and chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "window-size=1300,1200",
        f"user-data-dir={tmp_path / 'profile'}",
    ):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(chromedriver))
    yield driver
    driver.quit()


def wait_for(what, found, seconds=600):
    """Return what `found` returns, as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s for {what}")


def elements(driver, selector):
    return driver.find_elements("css selector", selector)


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


def press(*keys):
    """Return a way to move a control by the keyboard."""
    return lambda control: control.send_keys(*keys)


def choose(position):
    """Return a way to choose an entry of a list by its position."""
    from selenium.webdriver.support.ui import Select

    return lambda control: Select(control).select_by_index(position)


def a_control_to_move(driver):
    """Return a control that changes the picture, and ways to move it.

    A slider may be at the end of the first way, so there are two.
    """
    from selenium.webdriver.common.keys import Keys

    for selector, ways in (
        (
            ".noUi-handle",
            [press(Keys.ARROW_RIGHT), press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)],
        ),
        (".widget-dropdown select", [choose(1), choose(2)]),
        (".widget-textarea textarea", [press(Keys.END, " Paris")]),
        (".widget-checkbox input", [press(Keys.SPACE)]),
    ):
        found = elements(driver, selector)
        if found:
            return found[0], ways
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
    wait_for("the widget", lambda: elements(driver, widget), seconds=400)
    wait_for(
        "the last cell",
        lambda: (
            not [
                e for e in elements(driver, ".jp-InputPrompt") if "*" in e.text
            ]
        ),
        seconds=400,  # an appendix trains
    )
    errors = elements(driver, '[data-mime-type*="stderr"], mjx-merror')
    assert [e.text for e in errors] == []
    if path.stem != "index":
        assert_described(driver)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_open_run_all_and_play(server, driver, path):
    live = ".widget-html-content img"
    open_and_run_all(server, driver, path, live)
    first = wait_for("a picture", lambda: driver.execute_script(PICTURE))
    control, ways = a_control_to_move(driver)
    driver.execute_script("arguments[0].scrollIntoView()", control)
    for move in ways:
        before = driver.execute_script(PICTURE)
        move(control)
        try:
            wait_for(
                "another picture",
                lambda: driver.execute_script(PICTURE) not in (None, before),
                seconds=10,
            )
            return
        except AssertionError:  # it may be at that end
            assert driver.execute_script(PICTURE) == first
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
    wait_for(
        "the days",
        lambda: [
            e
            for e in elements(driver, ".widget-html")
            if "Monday, Tuesday, Wednesday" in e.text
        ],
    )


# Texts whose contrast with what is behind them is below 4.5, the least that
# the Web Content Accessibility Guidelines allow.
FAINT = """
const parse = c => c.match(/[\\d.]+/g).map(Number);
const level = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = c => 0.2126 * level(c[0] / 255) + 0.7152 * level(c[1] / 255)
  + 0.0722 * level(c[2] / 255);
const faint = [];
const places = ".jp-RenderedHTMLCommon *, .jp-RenderedText pre";
for (const each of document.querySelectorAll(places)) {
  const own = [...each.childNodes].filter(n => n.nodeType === 3);
  const text = own.map(n => n.textContent).join("").trim();
  if (!text || !each.offsetParent) continue;
  let opacity = 1, behind = null;
  for (let up = each; up; up = up.parentElement) {
    const style = getComputedStyle(up), back = parse(style.backgroundColor);
    opacity *= Number(style.opacity);
    if (!behind && (back.length < 4 || back[3] > 0.5)) behind = back;
  }
  const front = parse(getComputedStyle(each).color);
  const seen = front.slice(0, 3).map(
    (v, i) => opacity * v + (1 - opacity) * behind[i]);
  const [low, high] = [light(seen), light(behind)].sort((a, b) => a - b);
  const ratio = (high + 0.05) / (low + 0.05);
  if (ratio < 4.5) faint.push(text.slice(0, 40) + " " + ratio.toFixed(1));
}
return [document.body.dataset.jpThemeName, faint];
"""
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
    theme, faint = driver.execute_script(FAINT)
    assert theme == "JupyterLab Dark" and faint == []
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
