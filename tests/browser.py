"""Chromium and a small server, for the tests marked `browser`.

They need chromium and chromedriver on the PATH (Debian: apt-get install
chromium chromium-driver), and selenium, which `make test-browser` installs.
"""

import contextlib
import functools
import http.server
import shutil
import threading
import time

FLAGS = (
    "headless=new no-sandbox disable-gpu disable-dev-shm-usage no-first-run "
    "disable-background-networking disable-component-update disable-sync "
    "window-size=1300,1200"
)


@contextlib.contextmanager
def chromium(profile):
    """Start Chromium with an empty profile folder; yield its driver."""
    from selenium import webdriver

    names = "chromium", "chromium-browser", "google-chrome"
    found = next(filter(None, map(shutil.which, names)), None)
    chromedriver = shutil.which("chromedriver")
    assert found and chromedriver, "install chromium and chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for flag in (*FLAGS.split(), f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(chromedriver))
    try:
        yield driver
    finally:
        driver.quit()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Note the files that are asked for; answer some as a test says."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        if name not in self.server.broken:
            return super().do_GET()
        status, data = self.server.broken[name]
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def served(folder):
    """Serve a folder on this machine; yield the server.

    `asked` are the names of files, `broken` the status and bytes by name.
    """
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.asked, server.broken = [], {}
    server.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


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


def show(driver, address, width=1300, theme="light"):
    """Open a page in a window of this width, in a theme."""
    phone = width < 500
    size = dict(width=width, height=900, deviceScaleFactor=1, mobile=phone)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": theme}
    media = {"features": [scheme]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get(address)


def foreign(driver, address) -> list[str]:
    """Return what the page asked for from another origin."""
    code = "return performance.getEntriesByType('resource').map(e => e.name)"
    found = driver.execute_script(code)
    return [name for name in found if not name.startswith((address, "data:"))]


def call(driver, code, *arguments):
    """Return what JavaScript returns, after its promises."""
    done = driver.execute_async_script(
        "const given = [...arguments], done = given.pop();"
        f"(async () => {{ {code} }})().then(value => done([value]),"
        " error => done(error.message));",
        *arguments,
    )
    assert isinstance(done, list), done
    return done[0]


# Texts whose contrast with what is behind them is below 4.5, the least that
# the Web Content Accessibility Guidelines allow.
FAINT = """
const parse = c => c.match(/[\\d.]+/g).map(
  (v, i) => c.startsWith("color(srgb") && i < 3 ? 255 * v : Number(v));
const level = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = c => 0.2126 * level(c[0] / 255) + 0.7152 * level(c[1] / 255)
  + 0.0722 * level(c[2] / 255);
const faint = [];
for (const each of document.querySelectorAll(arguments[0])) {
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
return faint;
"""
