"""Downloading, with the hub's client replaced by one that plays its parts."""

import huggingface_hub
import pytest
from huggingface_hub import errors

from llamalib.fetch import fetch, licence


@pytest.fixture
def hub(monkeypatch):
    """Replace the download: `hub(function)` is called in its place."""

    def replace(function):
        monkeypatch.setattr(huggingface_hub, "snapshot_download", function)

    return replace


def test_what_is_asked_for_and_where_it_lands(hub, tmp_path, capsys):
    asked = {}

    def download(repo, **how):
        asked.update(how, repo=repo)
        (how["local_dir"] / "original").mkdir(parents=True)
        (how["local_dir"] / "original" / "params.json").touch()

    hub(download)
    found = fetch("Llama-3.2-1B", data=tmp_path)
    assert found == tmp_path / "Llama-3.2-1B" / "original"
    assert asked == {
        "repo": "meta-llama/Llama-3.2-1B",
        "allow_patterns": ["original/*"],
        "local_dir": tmp_path / "Llama-3.2-1B",
    }
    assert "llama.com/llama3_2/license" in capsys.readouterr().out


@pytest.mark.parametrize(
    "kind, raised, said",
    [
        (errors.GatedRepoError, RuntimeError, "accept it, .*hf auth login"),
        (errors.RepositoryNotFoundError, ValueError, "check the name"),
        (errors.HFValidationError, ValueError, "no model's name"),
        (errors.LocalEntryNotFoundError, RuntimeError, "is there a network"),
        (ConnectionResetError, RuntimeError, "is kept: run the command again"),
        (OSError, RuntimeError, "room on the disk"),
    ],
)
def test_every_refusal_says_what_to_do(hub, tmp_path, kind, raised, said):
    def download(repo, **how):
        raise kind.__new__(kind)  # its own making asks for a response

    hub(download)
    with pytest.raises(raised, match=f"(?i){said}"):
        fetch("Llama-3.2-1B", data=tmp_path)


def test_a_page_without_metas_files(hub, tmp_path):
    hub(lambda repo, **how: None)
    with pytest.raises(ValueError, match="no folder original/"):
        fetch("someone/else", data=tmp_path)


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
