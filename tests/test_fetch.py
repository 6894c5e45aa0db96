"""Downloads from a hub on this machine, by huggingface_hub."""

import errno
import os
import time

import pytest
import torch
from huggingface_hub import constants

import llamalib
from llamalib.__main__ import main
from llamalib.fetch import fetch, licence
from llamalib.load import REAL, ROOT
from tests.helpers import random_ids, write_checkpoint
from tests.hub import Hub, serving
from tests.test_huggingface import change_tokenizer, write_folder

REPO = "meta-llama/Llama-3.2-1B"
THEIRS = ["config.json", "model.safetensors", "tokenizer.json"]
METAS = ["original/consolidated.00.pth", "original/params.json"]
METAS += ["original/tokenizer.model"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("source"))


@pytest.fixture
def hub(source):
    """A page like Meta's: its files, and others that `load` does not read."""
    files = {f"original/{p.name}": p.read_bytes() for p in source.iterdir()}
    more = {"README.md": b"read", "model.safetensors": b"x"}
    return Hub(REPO, files | more)


@pytest.fixture
def url(hub, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # before a retry
    with serving(hub) as address:
        yield address


def files_in(folder):
    """Return the files that are no notes of huggingface_hub."""
    files = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
    return sorted(p.as_posix() for p in files if ".cache" not in p.parts)


@pytest.fixture
def page(hub, tmp_path):
    """Make the hub's page one in Hugging Face's format; return its folder."""
    folder = write_folder(tmp_path / "source")
    hub.repo, hub.license = "someone/Small-Llama", "apache-2.0"
    hub.files = {p.name: p.read_bytes() for p in folder.iterdir()}
    hub.files |= {"pytorch_model.bin": b"x", "onnx/model.safetensors": b"y"}
    return folder


def test_a_downloaded_model_opens(url, hub, source, tmp_path, capsys):
    folder = fetch(data=tmp_path, endpoint=url)
    assert folder == tmp_path / "Llama-3.2-1B" / "original"
    assert files_in(tmp_path / "Llama-3.2-1B") == METAS  # and no more
    ids = random_ids(5)
    found = llamalib.load(folder.parent, device="cpu", check=True)(ids)
    assert torch.equal(found, llamalib.load(source, device="cpu")(ids))
    said = capsys.readouterr().out
    assert "Llama Community License: https://www.llama.com/llama3_2/" in said
    # whole files are not downloaded again
    hub.asked.clear()
    fetch(data=tmp_path, endpoint=url)
    assert not [path for path in hub.asked if "resolve" in path]


def test_a_hugging_face_page(url, page, tmp_path, capsys):
    """The files that load reads, and Meta's for notebooks 00 to 02."""
    found = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    target = tmp_path / "data" / "someone" / "Small-Llama"
    assert found == target / "original"
    assert files_in(target) == sorted([*THEIRS, *METAS])
    ids = random_ids(5)
    expected = llamalib.load(page, device="cpu")(ids)
    for place in (target, found):  # either may be named
        assert llamalib.find_checkpoint(place, metas=True) == found
        llama = llamalib.load(place, device="cpu", check=True)
        assert torch.equal(llama(ids), expected)
        assert llama.name == "Small-Llama"
    assert "licence of their own: apache-2.0" in capsys.readouterr().out


def test_a_model_that_metas_format_cannot_hold(
    url, hub, page, tmp_path, capsys
):
    """Like SmolLM2: the folder is the result."""
    tokenizer = change_tokenizer(page)  # no longer Llama 3's
    hub.files[tokenizer.name] = tokenizer.read_bytes()
    found = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert found == tmp_path / "data" / "someone" / "Small-Llama"
    assert "not for notebooks 00 to 02: Meta's" in capsys.readouterr().out
    assert files_in(found) == THEIRS
    assert llamalib.load(found, device="cpu").config.dim == 64


def test_a_connection_that_stays_broken(url, hub, tmp_path):
    """No incomplete file has the final name; the next call goes on."""
    hub.breaks = 1000
    with pytest.raises(ConnectionError, match="cannot be reached.*is kept"):
        fetch(data=tmp_path, endpoint=url)
    target = tmp_path / "Llama-3.2-1B"
    done = files_in(target)
    assert len(done) < 3
    assert all((target / n).read_bytes() == hub.files[n] for n in done)
    hub.breaks = 0
    fetch(data=tmp_path, endpoint=url)
    assert files_in(target) == METAS


@pytest.mark.parametrize(
    "login, status, raised, said",
    [
        ("first", None, PermissionError, "its licence.*hf auth login"),
        ("absent", None, ValueError, "does not exist, or is private.*hf auth"),
        (None, 401, ValueError, "hf auth login"),  # an expired login
        (None, 403, PermissionError, "hf auth login"),
        (None, 500, ConnectionError, "cannot be reached .*try again later"),
    ],
)
def test_a_hub_that_refuses(url, hub, tmp_path, login, status, raised, said):
    hub.login, hub.status = login, status
    with pytest.raises(raised, match=f"{url}/{REPO} .*{said}") as error:
        fetch(data=tmp_path, endpoint=url)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert files_in(tmp_path) == []


def test_no_model_of_that_name(url, tmp_path):
    for name in ("nobody/nothing", "a/b/c", "no name at all"):
        with pytest.raises(ValueError, match="does not exist, or is private"):
            fetch(name, tmp_path, endpoint=url)


def test_a_page_without_such_files(url, hub, tmp_path):
    hub.files = {"original/../consolidated.00.pth": b"x", "x.gguf": b"x"}
    with pytest.raises(ValueError, match="neither original/params.json nor"):
        fetch(data=tmp_path / "a" / "b", endpoint=url)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_refuses(url, tmp_path, monkeypatch, code):
    def refused(*args, **options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    with pytest.raises(OSError, match="1B cannot be written to") as error:
        fetch(data=tmp_path, endpoint=url)
    assert error.value.errno == code


def test_the_command(tmp_path, monkeypatch, capsys):
    """It says what to set, if a notebook does not find the folder."""
    for folder in (tmp_path, ROOT / REAL):
        monkeypatch.setattr(
            "llamalib.__main__.fetch", lambda model, folder=folder: folder
        )
        assert main(["fetch", REPO]) == 0
        asks = f"set LLAMA_DIR to {folder}" in capsys.readouterr().out
        assert asks == (folder == tmp_path)


def test_licences():
    assert "llama.com/llama3_1/license/" in licence("x/Llama-3.1-8B-Instruct")
    assert "llama.com/llama3/license/" in licence("Meta-Llama-3-8B")
    assert "\x1b" not in licence("someone/x", "mit\x1b[31m")
