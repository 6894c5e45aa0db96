"""Downloads from a hub on this machine, by huggingface_hub."""

import errno
import json
import os
import re
import time

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants

import llamalib
from llamalib.__main__ import main
from llamalib.fetch import fetch, licence
from llamalib.hugging_face import read_template
from llamalib.load import REAL, ROOT
from tests.helpers import (
    dead_process,
    random_ids,
    random_llama,
    write_checkpoint,
)
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


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "tokenizer_config.json"]
)
def test_the_template_of_dialogues_comes_too(url, hub, page, tmp_path, name):
    """It has the system message of ChatML."""
    text = "<|im_start|>system\nBe kind.<|im_end|>"
    is_json = name.endswith("json")
    data = json.dumps({"chat_template": text}) if is_json else text
    hub.files[name] = data.encode()
    fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    folder = tmp_path / "data" / "someone" / "Small-Llama"
    assert read_template(folder) == text


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
        (None, 200, ValueError, "gives what is no model's page"),  # a portal
    ],
)
def test_a_hub_that_refuses(url, hub, tmp_path, login, status, raised, said):
    hub.login, hub.status = login, status
    with pytest.raises(raised, match=f"{url}/{REPO} .*{said}") as error:
        fetch(data=tmp_path, endpoint=url)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", METAS)
def test_a_file_that_changes_on_its_way(url, hub, tmp_path, name):
    """One bit; neither the file nor the settings stay."""
    hub.altered = {name}
    with pytest.raises(ValueError, match="checksum: try again"):
        fetch(data=tmp_path, endpoint=url)
    found = files_in(tmp_path / "Llama-3.2-1B")
    assert name not in found and METAS[1] not in found
    hub.altered = set()
    fetch(data=tmp_path, endpoint=url)
    assert files_in(tmp_path / "Llama-3.2-1B") == METAS


def test_a_file_that_changes_on_the_disk(url, hub, tmp_path):
    folder = fetch(data=tmp_path, endpoint=url)
    for name in METAS:
        file = tmp_path / "Llama-3.2-1B" / name
        data = file.read_bytes()
        kept = file.stat()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        os.utime(file, ns=(kept.st_atime_ns, kept.st_mtime_ns))
        fetch(data=tmp_path, endpoint=url)
        assert file.read_bytes() == data
    assert llamalib.load(folder, device="cpu", check=True)


@pytest.mark.parametrize("n_files", [0, 1, 2])
def test_an_update_that_stops_opens_as_neither(
    url, hub, page, tmp_path, monkeypatch, n_files
):
    """After some of its files; the next call brings the rest."""
    del page
    data = json.loads(hub.files["tokenizer.json"])
    data["model"]["merges"].pop()  # then there is no original/
    hub.files["tokenizer.json"] = json.dumps(data).encode()
    hub.files["generation_config.json"] = b'{"eos_token_id": 5}'
    target = fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert llamalib.load(target, device="cpu").tokenizer.eos_id == 5
    weights, config = hub.files["model.safetensors"], hub.files["config.json"]
    hub.files["model.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    hub.files["config.json"] = config + b"\n"
    hub.files["tokenizer.json"] += b"\n"
    del hub.files["generation_config.json"]
    names = ["tokenizer.json", "model.safetensors"][:n_files]
    real = huggingface_hub.snapshot_download

    def stops(*args, allow_patterns, **options):
        if allow_patterns != ["config.json"]:
            real(*args, allow_patterns=names, **options)
            raise KeyboardInterrupt
        return real(*args, allow_patterns=allow_patterns, **options)

    with monkeypatch.context() as patched:
        patched.setattr(huggingface_hub, "snapshot_download", stops)
        with pytest.raises(KeyboardInterrupt):
            fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    with pytest.raises(FileNotFoundError, match="nor Hugging Face's config"):
        llamalib.load(target, device="cpu")
    fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert {n: (target / n).read_bytes() for n in files_in(target)} == {
        n: hub.files[n] for n in THEIRS
    }
    assert llamalib.load(target, device="cpu")


def test_a_page_that_changed_has_no_older_original(
    url, hub, page, tmp_path, monkeypatch
):
    """Nor does a call that is killed before it writes one leave it."""
    original = fetch("someone/Small-Llama", tmp_path, endpoint=url)
    other = write_folder(tmp_path / "other", random_llama(seed=1))
    hub.files = {p.name: p.read_bytes() for p in other.iterdir()}
    hub.sha = "1" * 40

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("llamalib.fetch.save", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch("someone/Small-Llama", tmp_path, endpoint=url)
    assert llamalib.find_checkpoint(original.parent) == original.parent
    assert fetch("someone/Small-Llama", tmp_path, endpoint=url) == original
    ids = random_ids(5)
    found = llamalib.load(original, device="cpu")(ids)
    assert torch.equal(found, llamalib.load(other, device="cpu")(ids))


def test_another_architecture_is_refused_before_its_weights(
    url, hub, page, tmp_path, capsys
):
    del page
    hub.files["config.json"] = b'{"model_type": "gpt2"}'
    address = re.escape(f"{url}/someone/Small-Llama/config.json")
    said = f"^{address}: model_type must be llama, got 'gpt2'"
    with pytest.raises(ValueError, match=said):
        fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert files_in(tmp_path / "data") == []
    assert not [path for path in hub.asked if "safetensors" in path]
    assert "ready" not in capsys.readouterr().out


def test_weights_of_metas_that_are_damaged(url, hub, tmp_path):
    hub.files["original/consolidated.00.pth"] = b"x" * 99
    with pytest.raises(ValueError, match="consolidated.00.pth is damaged"):
        fetch(data=tmp_path, endpoint=url)


def test_weights_that_are_no_llamas_are_not_ready(
    url, hub, page, tmp_path, capsys
):
    del page
    hub.files["model.safetensors"] = b"x" * 99
    with pytest.raises(ValueError, match="model.safetensors is damaged"):
        fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert "ready" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["model/../../x", "model\x1b", "model a"])
def test_a_name_that_no_file_of_a_llama_has(url, hub, page, tmp_path, name):
    del page
    hub.files[f"{name}.safetensors"] = b"x"
    with pytest.raises(ValueError, match="lists model.*an invalid name") as e:
        fetch("someone/Small-Llama", tmp_path / "data", endpoint=url)
    assert str(e.value).isprintable() and files_in(tmp_path / "data") == []


def test_a_page_without_checksums(url, hub, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.hub.checksum", lambda name, data: {})
    with pytest.raises(ValueError, match="lists original/.* no checksum"):
        fetch(data=tmp_path, endpoint=url)


def test_what_a_killed_download_left_is_removed(url, hub, tmp_path):
    """Not that of a process that lives, nor a file with such a name."""
    left = tmp_path / f"Llama-3.2-1B.part{dead_process()}"
    names = f"Llama-3.2-1B.part{os.getppid()}", "x.part2", "Llama-3.2-1B.part"
    others = [tmp_path / name for name in names]
    for folder in (left, *others):
        folder.mkdir()
        (folder / "some").write_bytes(b"x")
    fetch(data=tmp_path, endpoint=url)
    assert not left.exists() and all(each.exists() for each in others)


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
