"""Downloads from a hub on this machine."""

import errno
import json
import os
import shutil
import time

import pytest
import torch
from huggingface_hub import constants
from matplotlib import pyplot as plt

import llamalib
from llamalib.__main__ import all_notebooks, main
from llamalib.files import ROOT
from llamalib.formats import find
from llamalib.formats.download import fetch, licence
from tests.helpers import code_cells, random_ids, write_checkpoint
from tests.hub import REFUSALS, Hub, serving
from tests.reference import write_transformers
from tests.test_huggingface import tokenizer_json, write_folder

REPO = "meta-llama/Llama-3.2-1B"
PTH = "original/consolidated.00.pth"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("source"))


@pytest.fixture
def hub(source):
    """A page like Meta's: its files, and others that `load` does not read."""
    files = {f"original/{p.name}": p.read_bytes() for p in source.iterdir()}
    more = {"README.md": b"read", "original/orig_params.json": b"{}"}
    return Hub(REPO, files | more)


@pytest.fixture
def url(hub, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # before a retry
    # small chunks, so that half of a small file can be kept
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    with serving(hub) as address:
        yield address


def files_in(folder):
    """Return the files with a final name."""
    return sorted(
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".part"
    )


def test_a_downloaded_model_opens(url, hub, source, tmp_path, capsys):
    folder = fetch(data=tmp_path, endpoint=url)
    assert folder == tmp_path / "Llama-3.2-1B" / "original"
    # what load reads, and no more
    assert files_in(tmp_path / "Llama-3.2-1B") == [
        PTH,
        "original/params.json",
        "original/tokenizer.model",
    ]
    ids = random_ids(5)
    found = llamalib.load(folder, device="cpu")(ids)
    assert torch.equal(found, llamalib.load(source, device="cpu")(ids))
    said = capsys.readouterr().out
    assert "Llama Community License: https://www.llama.com/llama3_2/" in said
    assert f"{PTH}, {len(hub.files[PTH]):,} bytes" in said


def test_whole_files_are_not_downloaded_again(url, hub, tmp_path):
    fetch(data=tmp_path, endpoint=url)
    hub.asked.clear()
    fetch(data=tmp_path, endpoint=url)
    assert [kind for kind, *_ in hub.asked] == ["GET"]  # the list of files
    # except what has been damaged since, large or small
    path = tmp_path / "Llama-3.2-1B" / PTH
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    fetch(data=tmp_path, endpoint=url)
    assert path.read_bytes() == hub.files[PTH]
    small = tmp_path / "Llama-3.2-1B" / "original" / "params.json"
    small.write_bytes(small.read_bytes().replace(b"64", b"65"))
    fetch(data=tmp_path, endpoint=url)
    assert small.read_bytes() == hub.files["original/params.json"]


def page_of(hub, folder):
    """Make the hub's page one in Hugging Face's format."""
    hub.repo, hub.license = "someone/Small-Llama", "apache-2.0"
    hub.files = {p.name: p.read_bytes() for p in folder.iterdir()}
    hub.files |= {"pytorch_model.bin": b"x", "onnx/model.safetensors": b"y"}


METAS = ["consolidated.00.pth", "params.json", "tokenizer.model"]
METAS = [f"original/{name}" for name in METAS]
THEIRS = ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_hugging_face_page(url, hub, tmp_path, capsys):
    """Without original/: the files that load reads, and Meta's of them."""
    folder = write_folder(tmp_path / "source")
    page_of(hub, folder)
    found = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    target = tmp_path / "data" / "someone" / "Small-Llama"
    assert found == target / "original"
    assert files_in(target) == sorted([*THEIRS, *METAS])
    ids = random_ids(5)
    expected = llamalib.load(folder, device="cpu")(ids)
    for place in (target, found):  # either may be named
        assert llamalib.find_checkpoint(place, metas=True) == found
        llama = llamalib.load(place, device="cpu", check=True)
        assert torch.equal(llama(ids), expected)
        assert llama.name == "Small-Llama"
    said = capsys.readouterr().out
    assert "licence of their own: apache-2.0" in said
    # before the first download: what it needs, and what it does then
    size = sum(len(hub.files[name]) for name in THEIRS)
    plan = said[: said.index("config.json, ")]
    assert f"{size:,} bytes to download to {target}" in plan
    assert f"Meta's format in {found} for notebooks 00 to 02" in plan
    assert f"about {size:,} bytes more" in plan
    assert "are free" in plan


def test_metas_format_is_written_once(url, hub, tmp_path, capsys):
    """Until a file of the page changes; then the old one is not taken."""
    page_of(hub, write_folder(tmp_path / "source"))
    found = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    before = {p: p.stat().st_mtime_ns for p in found.iterdir()}
    capsys.readouterr()
    assert fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert {p: p.stat().st_mtime_ns for p in found.iterdir()} == before
    assert "Meta's format" not in capsys.readouterr().out
    # broken off before the last file of Meta's format
    (found / "params.json").unlink()
    assert llamalib.find_checkpoint(found.parent) == found.parent
    assert fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert (found / "params.json").is_file()
    hub.files["config.json"] = hub.files["config.json"].replace(b" ", b"  ")
    said = "original is .older than .*expected newer: remove it"
    with pytest.raises(ValueError, match=said):
        fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)


def test_a_model_that_metas_format_cannot_hold(url, hub, tmp_path, capsys):
    """It is kept as it is, and can be loaded."""
    folder = write_folder(tmp_path / "source")
    file = folder / "tokenizer.json"
    data = json.loads(file.read_text())
    data["model"]["merges"].pop()  # no longer Llama 3's
    file.write_text(json.dumps(data))
    page_of(hub, folder)
    found = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert found == tmp_path / "data" / "someone" / "Small-Llama"
    said = capsys.readouterr().out
    assert "Meta's format was not written: the tokenizer is 'Library" in said
    assert f"{found} can be loaded, but notebooks 00 to 02" in said
    assert files_in(found) == THEIRS
    assert llamalib.load(found, device="cpu").config.dim == 64


def test_no_room_for_metas_format(url, hub, tmp_path, monkeypatch, capsys):
    page_of(hub, write_folder(tmp_path / "source"))
    size = sum(len(hub.files[name]) for name in THEIRS)
    usage = shutil.disk_usage(tmp_path)._replace(free=size)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    # the space is as before the download: one byte less is too little
    usage = usage._replace(free=size - 1)
    (tmp_path / "data/someone/Small-Llama/original/params.json").unlink()
    capsys.readouterr()
    found = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert found.name == "Small-Llama"
    said = capsys.readouterr().out
    assert f"not written: [Errno 28] {size:,} bytes are needed" in said
    assert llamalib.load(found, device="cpu").config.dim == 64


def test_a_page_of_another_architecture(url, hub, tmp_path):
    folder = write_folder(tmp_path / "source")
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"llama"', '"mistral"'))
    page_of(hub, folder)
    with pytest.raises(ValueError, match="model_type is 'mistral'; expected"):
        fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory, pocket_folder):
    """Return the folder of the pocket Llama, fetched in the other format."""
    source = tmp_path_factory.mktemp("pocket")
    pocket = llamalib.load(pocket_folder, device="cpu")
    write_transformers(pocket, source)
    tokenizer_json(pocket_folder / "tokenizer.model", source / TOKENIZER)
    (source / "generation_config.json").write_text('{"eos_token_id": 3073}')
    hub = Hub("someone/Pocket", {})
    hub.files = {p.name: p.read_bytes() for p in source.iterdir()}
    with pytest.MonkeyPatch.context() as patch, serving(hub) as address:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        data = tmp_path_factory.mktemp("data")
        return fetch("someone/Pocket", data, endpoint=address)


TOKENIZER = "tokenizer.json"
QUICK = ("00", "01", "02")  # these read Meta's files themselves


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            marks=[] if path.stem[:2] in QUICK else [pytest.mark.slow],
            id=path.stem,
        )
        for path in all_notebooks()
    ],
)
def test_every_notebook_runs_after_fetch(fetched, monkeypatch, capsys, path):
    """Every cell, on what `fetch` made of a page in Hugging Face's format."""
    monkeypatch.setenv("LLAMA_DIR", str(fetched))
    monkeypatch.chdir(path.parent)
    names = {"__name__": "__main__", "display": lambda *_: None}
    for _, source in code_cells(path):
        exec(compile(source, path.name, "exec"), names)
        plt.close("all")
    assert "Pocket" in capsys.readouterr().out


def test_a_broken_connection_is_resumed(url, hub, tmp_path):
    """Within one call, from where it broke."""
    hub.breaks = 2
    folder = fetch(data=tmp_path, endpoint=url)
    assert (folder / "consolidated.00.pth").read_bytes() == hub.files[PTH]
    ranges = [asked for *_, asked in hub.asked if asked]
    assert hub.breaks == 0 and any(r != "bytes=0-" for r in ranges)


def test_a_connection_that_stays_broken(url, hub, tmp_path):
    """No incomplete file has the final name; the next call resumes."""
    hub.breaks = 1000
    with pytest.raises(
        ConnectionError, match="(?s)cannot be reached.*is kept"
    ):
        fetch(data=tmp_path, endpoint=url)
    target = tmp_path / "Llama-3.2-1B"
    done = files_in(target)
    assert all((target / n).read_bytes() == hub.files[n] for n in done)
    assert len(done) < 3
    hub.breaks = 0
    hub.asked.clear()
    fetch(data=tmp_path, endpoint=url)
    assert len(files_in(target)) == 3
    starts = [asked for *_, asked in hub.asked if asked]
    assert any(int(s[6:].split("-")[0]) > 0 for s in starts), starts


@pytest.mark.parametrize("change", ["a bit", "shorter", "longer"])
def test_a_wrong_file_is_removed(url, hub, tmp_path, change):
    data = bytearray(hub.files[PTH])
    if change == "a bit":
        data[5000] ^= 8
    hub.given[PTH] = {
        "a bit": bytes(data),
        "shorter": bytes(data[:-9]),
        "longer": bytes(data) + b"more",
    }[change]
    with pytest.raises((RuntimeError, ConnectionError), match="(?i)again"):
        fetch(data=tmp_path, endpoint=url)
    assert not (tmp_path / "Llama-3.2-1B" / PTH).exists()
    hub.given.clear()
    fetch(data=tmp_path, endpoint=url)
    assert (tmp_path / "Llama-3.2-1B" / PTH).read_bytes() == hub.files[PTH]


@pytest.mark.parametrize(
    "login, raised, said",
    [
        ("first", PermissionError, "accepted its licence.*hf auth login"),
        ("accept", PermissionError, "accepted its licence.*hf auth login"),
        ("absent", ValueError, "is not there.*check the name"),
    ],
)
def test_a_page_that_refuses(url, hub, tmp_path, login, raised, said):
    assert login in REFUSALS
    hub.login = login
    with pytest.raises(raised, match=f"{url}/{REPO} .*{said}"):
        fetch(data=tmp_path, endpoint=url)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_with_a_fault(url, hub, tmp_path, status):
    hub.status = status
    with pytest.raises(
        ConnectionError, match=f"answers {status} .*try again later"
    ):
        fetch(data=tmp_path, endpoint=url)


def test_another_host_does_not_get_the_token(url, hub, tmp_path, monkeypatch):
    """Large files are on another server: the token is only for the hub."""
    store = Hub("a/store", hub.files)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving(store) as hub.store:
        folder = fetch(data=tmp_path, endpoint=url)
    assert (folder / "consolidated.00.pth").read_bytes() == hub.files[PTH]
    assert {token for _, token in hub.tokens} == {"Bearer hf_secret"}
    assert f"/store/{PTH}" in [path for path, _ in store.tokens]
    assert {token for _, token in store.tokens} == {None}


def test_no_network(url, tmp_path):
    nobody = url.rsplit(":", 1)[0] + ":9"
    with pytest.raises(
        ConnectionError, match="cannot be reached.*check the network"
    ):
        fetch(data=tmp_path, endpoint=nobody)


@pytest.mark.parametrize(
    "name",
    [
        "original/consolidated./../../../../evil.pth",
        "original/../consolidated.00.pth",
        "model-1-of-../../2.safetensors",
        "/model.safetensors",
    ],
)
def test_a_page_cannot_write_elsewhere(url, hub, tmp_path, name):
    hub.files = {name: b"import os", "config.json": b"{}"}
    hub.files["original/params.json"] = b"{}"
    with pytest.raises(ValueError, match="has neither"):
        fetch(data=tmp_path / "a" / "b", endpoint=url)
    assert files_in(tmp_path) == []


def test_a_page_without_checksums(url, hub, tmp_path, monkeypatch):
    for blob in (None, "/../../../a" + 40 * "0"):
        monkeypatch.setattr(Hub, "blob", lambda self, name: blob)
        with pytest.raises(ValueError, match="params.json: the checksum is "):
            fetch(data=tmp_path, endpoint=url)
    assert files_in(tmp_path) == []


def test_two_owners_of_one_name(url, hub, tmp_path):
    """Each has a folder of its own."""
    ours = fetch(data=tmp_path, endpoint=url)
    hub.repo = "someone/Llama-3.2-1B"
    theirs = fetch(hub.repo, tmp_path, endpoint=url)
    assert ours == tmp_path / "Llama-3.2-1B" / "original"
    assert theirs == tmp_path / "someone" / "Llama-3.2-1B" / "original"


def test_disk_space_for_the_rest_is_enough(url, hub, tmp_path, monkeypatch):
    hub.breaks = 1000
    with pytest.raises(ConnectionError):
        fetch(data=tmp_path, endpoint=url)
    hub.breaks = 0
    done = sum(p.stat().st_size for p in tmp_path.rglob("*.*") if p.is_file())
    assert done > 0
    names = ("params.json", "tokenizer.model", "consolidated.00.pth")
    whole = sum(len(hub.files[f"original/{name}"]) for name in names)
    usage = shutil.disk_usage(tmp_path)._replace(free=whole - done)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    fetch(data=tmp_path, endpoint=url)


def test_a_part_of_another_version(url, hub, tmp_path):
    """It is not resumed if the page has another file by now."""
    hub.breaks = 1000
    with pytest.raises(ConnectionError):
        fetch(data=tmp_path, endpoint=url)
    hub.breaks = 0
    name = "original/tokenizer.model"
    hub.files[name] = hub.files[name].replace(b"AA==", b"/w==", 1)[::-1]
    fetch_all = tmp_path / "Llama-3.2-1B"
    fetch(data=tmp_path, endpoint=url)
    assert (fetch_all / name).read_bytes() == hub.files[name]


def test_a_folder_that_may_not_be_written(url, tmp_path, monkeypatch):
    def refused(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("llamalib.formats.download.download_file", refused)
    with pytest.raises(
        PermissionError, match="cannot be written to .*Permission denied"
    ):
        fetch(data=tmp_path, endpoint=url)


def test_an_expired_login(url, hub, tmp_path):
    hub.status = 401
    with pytest.raises(
        PermissionError, match="does not accept your login.*hf auth login"
    ):
        fetch(data=tmp_path, endpoint=url)


def test_a_file_where_the_folder_should_be(url, tmp_path):
    (tmp_path / "data").write_text("mine")
    with pytest.raises(OSError, match="cannot be written to") as error:
        fetch(data=tmp_path / "data", endpoint=url)
    assert not isinstance(error.value, ConnectionError)
    assert (tmp_path / "data").read_text() == "mine"


def test_no_model_of_that_name(url, tmp_path):
    for name in ("nobody/nothing", "a/b/c", "no name at all"):
        with pytest.raises(ValueError, match="not there|not a valid name"):
            fetch(name, tmp_path, endpoint=url)


def test_a_page_without_such_files(url, hub, tmp_path):
    hub.files = {"README.md": b"x", "model.gguf": b"y", "config.json": b"{}"}
    with pytest.raises(ValueError, match="neither Meta.s files .*nor config"):
        fetch(data=tmp_path, endpoint=url)


def test_no_room_on_the_disk(url, hub, tmp_path, monkeypatch):
    """Known before anything is downloaded."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    needed = sum(
        len(hub.files[f"original/{name}"])
        for name in ("params.json", "tokenizer.model", "consolidated.00.pth")
    )
    with pytest.raises(OSError, match="make room") as error:
        fetch(data=tmp_path, endpoint=url)
    assert error.value.errno == errno.ENOSPC
    assert f"{needed:,} bytes" in str(error.value)
    assert "1,000 bytes free" in str(error.value)
    assert files_in(tmp_path) == []


def test_the_disk_fills_while_it_is_written(url, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("llamalib.formats.download.download_file", full)
    with pytest.raises(OSError, match="make room.*is kept") as error:
        fetch(data=tmp_path, endpoint=url)
    assert error.value.errno == errno.ENOSPC


def test_stopped_by_hand(url, tmp_path, monkeypatch):
    """Ctrl-C stays what it is."""

    def stopped(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("llamalib.formats.download.download_file", stopped)
    with pytest.raises(KeyboardInterrupt):
        fetch(data=tmp_path, endpoint=url)


def test_the_command(url, hub, monkeypatch, capsys):
    """One sentence, no traceback, and an exit status."""
    asked = []

    def nothing(model):
        asked.append(model)
        hub.login = "first"
        return fetch(model, endpoint=url)

    monkeypatch.setattr("llamalib.__main__.fetch", nothing)
    assert main(["fetch", REPO]) == 1
    said = capsys.readouterr().err
    assert said.startswith("PermissionError: ") and said.count("\n") == 1
    assert asked == [REPO]


def test_the_command_names_the_folder(tmp_path, monkeypatch, capsys):
    """A notebook finds the default by itself."""
    found = tmp_path
    monkeypatch.setattr("llamalib.__main__.fetch", lambda model: found)
    assert main(["fetch", REPO]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"for the notebooks, set LLAMA_DIR to {tmp_path}\n")
    found = ROOT / find.REAL
    assert main(["fetch", REPO]) == 0
    assert "LLAMA_DIR" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "model, version",
    [
        ("Llama-3.2-1B", "3_2"),
        ("meta-llama/Llama-3.1-8B-Instruct", "3_1"),
        ("Meta-Llama-3-8B", "3"),
        ("Llama-3.3-70B-Instruct", "3_3"),
    ],
)
def test_licences(model, version):
    assert f"llama.com/llama{version}/license/" in licence(model)
