"""Write the pictures of the explorer, light and dark, in Chromium.

python .ci/front.py, or make picture; tests/browser.py says what it needs.
README shows three of its steps, the index and the site's links all of it.
"""

import base64
import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw, PngImagePlugin

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import browser  # noqa: E402
from tools import explorer  # noqa: E402

SIZE = dict(width=1300, height=1010, deviceScaleFactor=1.5, mobile=False)
SHOWN = "return !!window.llama?.explorers?.[0]?.trace"
WORDS = "return document.querySelector('.llama').innerText"
NO_BARS = "document.documentElement.style.scrollbarWidth = 'none'"
# Nothing that moves, and none of the map's own lines
STILL = """
const style = document.createElement("style");
style.textContent = `* { transition: none !important }
  .llama-map *::before, .llama-map *::after { content: none !important }
  .llama-tile { box-shadow: none !important }`;
document.head.append(style);
"""
STEPS = "tokens", "attention", "logits"
# Where a tile of the map is, with an edge, and its words
TILE = """
const tile = document.querySelector(`[data-tile="${arguments[0]}"]`);
const {x, y, width, height} = tile.getBoundingClientRect(), edge = 3;
return [{x: x - edge, y: y + scrollY - edge, width: width + 2 * edge,
  height: height + 2 * edge, scale: 3}, tile.innerText];
"""
GAP = 90  # between two tiles, in pixels of the picture


def whole(driver, address: str, theme: str):
    """Return a picture of the explorer, and the words that it shows."""
    opened(driver, address, theme)
    words = driver.execute_script(WORDS)
    return picture(driver.get_screenshot_as_png()), words


def three_steps(driver, address: str, theme: str):
    """Return a picture of three tiles of the map, and their words."""
    # another tile is open, so that none of these is marked
    opened(driver, f"{address}?station=text", theme)
    driver.execute_script(STILL)
    time.sleep(1)  # the map is drawn again, in a page without bars
    words, tiles = [], []
    for name in STEPS:
        clip, said = driver.execute_script(TILE, name)
        asked = dict(clip=clip, captureBeyondViewport=True)
        made = driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        tiles.append(picture(base64.b64decode(made["data"])))
        words.append(said)
    return side_by_side(tiles), "\n".join(words)


def opened(driver, address: str, theme: str) -> None:
    """Open the explorer, and wait until it shows its numbers."""
    browser.show(driver, address, SIZE["width"], theme)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
    browser.wait_for("numbers", lambda: driver.execute_script(SHOWN), 60)
    driver.execute_script(NO_BARS)


def picture(png: bytes):
    return Image.open(io.BytesIO(png)).convert("RGB")


def side_by_side(tiles):
    """Return pictures in a row, with an arrow between two."""
    width = sum(each.width for each in tiles) + GAP * (len(tiles) - 1)
    height = max(each.height for each in tiles)
    image = Image.new("RGB", (width, height), tiles[0].getpixel((0, 0)))
    draw, x, y = ImageDraw.Draw(image), 0, height // 2
    for each in tiles:
        if x:
            tip, size = x - GAP // 3, 12
            draw.line([(tip - GAP // 3, y), (tip, y)], "#777777", 5)
            for side in -size, size:
                draw.line([(tip - size, y + side), (tip, y)], "#777777", 5)
        image.paste(each, (x, y - each.height // 2))
        x += each.width + GAP
    return image


def png(image, words: str) -> bytes:
    """Return a picture's file, with the words in it."""
    about, file = PngImagePlugin.PngInfo(), io.BytesIO()
    about.add_itxt("words", words)
    image = image.quantize(256, Image.Quantize.FASTOCTREE)
    image.save(file, "PNG", optimize=True, pnginfo=about)
    return file.getvalue()


def pictures():
    """Yield each picture's file, its theme, its bytes and its words."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = explorer.whole_page()
        (folder / "index.html").write_text(page, encoding="utf-8")
        with (
            browser.served(folder) as server,
            browser.chromium(folder / "profile") as driver,
        ):
            for theme in "light", "dark":
                for name, draw in ("explorer", whole), ("steps", three_steps):
                    image, words = draw(driver, server.address, theme)
                    file = ROOT / ".github" / f"{name}-{theme}.png"
                    yield file, theme, png(image, words), words


if __name__ == "__main__":
    for file, _, data, _ in pictures():
        file.write_bytes(data)
        print(file.relative_to(ROOT), f"{len(data):,} bytes")
