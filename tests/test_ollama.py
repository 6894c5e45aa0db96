"""Models that Ollama brought, in a store that the test makes."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import llamalib
from llamalib import ollama
from llamalib.__main__ import main
from llamalib.load import describe
from tests.gguf_files import write_gguf
from tests.helpers import random_ids
from tests.test_gguf import llama_of

PLAIN = dict(device="cpu", dtype=torch.float32)
LIBRARY = "registry.ollama.ai/library"
LAYER = "application/vnd.ollama.image"
DIGEST = "sha256:" + "0a" * 32
BLOB = DIGEST.replace(":", "-")


@pytest.fixture(scope="module")
def blob(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("blob") / BLOB, llama_of())


@pytest.fixture
def store(tmp_path, blob, monkeypatch):
    """A store with one blob and no model, which $OLLAMA_MODELS names."""
    folder = tmp_path / "store"
    (folder / "blobs").mkdir(parents=True)
    shutil.copy(blob, folder / "blobs")
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    return folder


def layer(kind, digest=DIGEST):
    return {"mediaType": f"{LAYER}.{kind}", "digest": digest, "size": 1}


def pull(store, place, layers=None):
    """Write the manifest that `ollama pull` would, or another."""
    file = store / "manifests" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    if layers is None:
        layers = [layer("license", DIGEST[:-1] + "b"), layer("model")]
    file.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return file


@pytest.mark.parametrize(
    "place, names",
    [
        (f"{LIBRARY}/llama3.2/1b", ["llama3.2:1b", "library/llama3.2:1b"]),
        (f"{LIBRARY}/llama3.2/1b", [f"{LIBRARY}/llama3.2:1b"]),
        (f"{LIBRARY}/llama3.2/latest", ["llama3.2", "llama3.2:latest"]),
        ("registry.ollama.ai/me/tiny/v2", ["me/tiny:v2"]),
        ("hf.co/me/tiny-GGUF/Q8_0", ["hf.co/me/tiny-GGUF:Q8_0"]),
        ("localhost:5000/me/tiny/latest", ["localhost:5000/me/tiny"]),
    ],
)
@torch.no_grad()
def test_the_model_has_ollamas_name(store, place, names, monkeypatch):
    pull(store, place)
    pull(store, f"{LIBRARY}/other/1b", [])
    tokens = random_ids(1, 9)
    expected = llama_of()(tokens)
    for name in names:
        path = f"ollama:{name}"
        for each in (path, Path(path)):
            assert llamalib.find_checkpoint(each) == store / "blobs" / BLOB
        llama = llamalib.load(path, **PLAIN)
        assert torch.equal(llama(tokens), expected)
        assert describe(llama).startswith(f"{name}: L=2, D=64")
        monkeypatch.setenv("LLAMA_DIR", path)
        assert llamalib.load(**PLAIN).name == name
    with pytest.raises(ValueError, match="Meta's is needed: run `python -m"):
        llamalib.find_checkpoint(metas=True)


def test_the_commands_take_the_name(store, tmp_path, capsys, monkeypatch):
    pull(store, f"{LIBRARY}/llama3.2/1b")
    metas = tmp_path / "metas"
    assert main(["convert", "ollama:llama3.2:1b", str(metas)]) == 0
    assert llamalib.load(metas, **PLAIN).name == "metas"
    monkeypatch.setenv("LLAMA_DIR", "ollama:llama3.2:1b")
    assert main(["run", "ab"]) == 0
    assert "llama3.2:1b: L=2, D=64" in capsys.readouterr().out
    assert main(["chat", "ollama:llama3.2:3b"]) == 1
    assert capsys.readouterr().err == (
        "FileNotFoundError: Ollama has no model llama3.2:3b; it has "
        "llama3.2:1b\n"
    )


def test_any_file_that_begins_like_gguf(blob, tmp_path):
    assert llamalib.find_checkpoint(blob) == blob
    assert llamalib.load(blob, **PLAIN).name == BLOB
    with pytest.raises(FileNotFoundError, match="neither a folder nor a GGUF"):
        llamalib.load(Path(__file__))


# -- where the store is ------------------------------------------------------


@pytest.fixture
def homes(store, tmp_path, monkeypatch):
    """The user's home and the service's; $OLLAMA_MODELS is not set."""
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setattr(
        os.path, "expanduser", lambda p: str(p).replace("~", str(tmp_path))
    )
    return tmp_path / ".ollama"


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_usual_place(store, homes, system, monkeypatch):
    monkeypatch.setattr(ollama.sys, "platform", system)
    name, said = "ollama:llama3.2:1b", "run `ollama pull llama3.2:1b`, or set"
    with pytest.raises(FileNotFoundError, match=said) as error:
        llamalib.load(name)
    assert f"in {homes / 'models'}" in str(error.value)
    assert ("/usr/share" in str(error.value)) == (system == "linux")
    homes.mkdir()
    store.rename(homes / "models")
    with pytest.raises(FileNotFoundError, match=said):  # blobs only
        llamalib.load(name)
    pull(homes / "models", f"{LIBRARY}/llama3.2/1b")
    assert llamalib.load(name, **PLAIN).name == "llama3.2:1b"


def test_the_users_store_is_before_the_services(store, homes, monkeypatch):
    other = homes.with_name("service")
    monkeypatch.setattr(ollama, "stores", lambda: [store, other])
    pull(store, f"{LIBRARY}/a/latest")
    pull(other, f"{LIBRARY}/a/latest", [])
    pull(other, f"{LIBRARY}/b/latest")
    assert llamalib.find_checkpoint("ollama:a") == store / "blobs" / BLOB
    with pytest.raises(FileNotFoundError, match="service.*is missing: run"):
        llamalib.find_checkpoint("ollama:b")


def test_a_store_that_others_may_not_read(store, monkeypatch):
    def refuse(folder):
        raise PermissionError(folder)

    monkeypatch.setattr(ollama.os, "listdir", refuse)
    with pytest.raises(PermissionError, match="store. Try `sudo usermod"):
        llamalib.load("ollama:llama3.2:1b")


# -- what is not there, or damaged -------------------------------------------


def test_names_that_are_not_there(store):
    outside = pull(store / "..", "x/y/z/v", [layer("model")]).resolve()
    for i in range(12):
        pull(store, f"{LIBRARY}/m{i:02}/latest")
    pull(store, f"{LIBRARY}/m00/.DS_Store", [])
    pull(store, "hf.co/a/b/c\x1b", [])
    for name in ("", "..", "../x", "/etc/passwd", "x:y:z", "a/b/c/d/e", "\0"):
        for path in (f"ollama:{name}", f"ollama:m00:{name or '?'}"):
            with pytest.raises(FileNotFoundError) as error:
                llamalib.load(path)
            assert str(error.value).endswith(
                "; it has hf.co/a/b:c\\x1b, m00:latest, m01:latest, m02:latest, "
                "m03:latest, m04:latest, m05:latest, m06:latest, m07:latest, "
                "m08:latest, … (13 in all)"
            )
            assert str(error.value).isprintable()
    steps = f"../../../../../{outside.relative_to(outside.parents[4])}"
    with pytest.raises(FileNotFoundError, match="Ollama has no model .*; it"):
        llamalib.load(f"ollama:{steps}")


def text(words):
    return lambda file: file.write_text(words)


def listing(*found):
    return text(json.dumps({"layers": found}))


OTHER = layer("model", DIGEST[:-1] + "b")


@pytest.mark.parametrize(
    "said, change",
    [
        ("is empty", text("")),
        ("is not JSON", text('{"layers": [')),
        ("must hold a JSON object, got a list", text("[]")),
        ("damaged or incomplete .'layers'.", text("{}")),
        ("damaged or incomplete", text('{"layers": 5}')),
        ("damaged or incomplete", text('{"layers": ["model"]}')),
        ("damaged or incomplete .'digest'.", listing({"mediaType": "a"})),
        ("has 0 files of weights", listing()),
        ("has 0 files of weights", listing(layer("tensor"))),
        ("has 2 files of weights", listing(layer("model"), OTHER)),
        ("has an adapter", listing(layer("model"), layer("adapter"))),
        ("a digest is sha256: and 64 digits, got 'sha256:../.*'",
         listing(layer("model", "sha256:../../x"))),
        ("a digest is", listing(layer("model", DIGEST.upper()))),
        ("a digest is", listing(layer("model", DIGEST + "\n"))),
        ("a digest is", listing(layer("model", [DIGEST]))),
        ("0b is missing: run `ollama pull a`", listing(OTHER)),
    ],
)  # fmt: skip
def test_damaged_manifests(store, said, change):
    change(pull(store, f"{LIBRARY}/a/latest"))
    with pytest.raises((ValueError, FileNotFoundError), match=said) as error:
        llamalib.load("ollama:a")
    words = str(error.value)
    assert str(store) in words and words.isprintable() and len(words) < 400


def test_a_blob_that_is_no_gguf(store):
    pull(store, f"{LIBRARY}/a/latest", [OTHER])
    for data in (b"", b"GG", b"\0" * 99, b"<html>"):
        (store / "blobs" / (BLOB[:-1] + "b")).write_bytes(data)
        with pytest.raises(FileNotFoundError, match="0b is neither a folder"):
            llamalib.load("ollama:a")


def test_the_digest_is_compared_when_asked(store):
    """It is the file's name; this one's is another, see DIGEST."""
    pull(store, f"{LIBRARY}/llama3.2/1b")
    wrong = store / "blobs" / BLOB
    assert llamalib.load("ollama:llama3.2:1b", **PLAIN)
    with pytest.raises(ValueError, match=f"{BLOB} is damaged: .*ollama pull"):
        llamalib.load("ollama:llama3.2:1b", check=True, **PLAIN)
    sha256 = hashlib.sha256(wrong.read_bytes()).hexdigest()
    right = wrong.rename(wrong.with_name(f"sha256-{sha256}"))
    assert llamalib.load(right, check=True, **PLAIN)
