"""Write the README's pictures: the explorer, light and dark, in Chromium.

python .ci/front.py, or make picture; tests/browser.py says what it needs.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import browser  # noqa: E402
from tools import explorer  # noqa: E402

PICTURES = {
    theme: ROOT / ".github" / f"explorer-{theme}.png"
    for theme in ("light", "dark")
}
WIDTH, HEIGHT = 1300, 1010
WORDS = "return document.querySelector('.llama').innerText"


def picture(driver, address: str, theme: str) -> tuple[bytes, str]:
    """Return a PNG of the explorer, and the words that it shows."""
    browser.show(driver, address, WIDTH, theme)
    size = dict(width=WIDTH, height=HEIGHT, deviceScaleFactor=1.5)
    name = "Emulation.setDeviceMetricsOverride"
    driver.execute_cdp_cmd(name, size | {"mobile": False})
    shown = "return !!window.llama?.explorers?.[0]?.trace"
    browser.wait_for("numbers", lambda: driver.execute_script(shown), 60)
    bare = "document.documentElement.style.scrollbarWidth = 'none'"
    driver.execute_script(bare)
    words = driver.execute_script(WORDS)
    image = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    image = image.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
    about, file = PngImagePlugin.PngInfo(), io.BytesIO()
    about.add_itxt("words", words)
    image.save(file, "PNG", optimize=True, pnginfo=about)
    return file.getvalue(), words


def pictures():
    """Yield each theme's picture and words."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = explorer.whole_page()
        (folder / "index.html").write_text(page, encoding="utf-8")
        with (
            browser.served(folder) as server,
            browser.chromium(folder / "profile") as driver,
        ):
            for theme in PICTURES:
                yield theme, *picture(driver, server.address, theme)


if __name__ == "__main__":
    for theme, data, _ in pictures():
        PICTURES[theme].write_bytes(data)
        print(PICTURES[theme].relative_to(ROOT), f"{len(data):,} bytes")
