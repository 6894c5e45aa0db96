r"""A model's page on a hub: what it lists, and its files, by huggingface_hub."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from .checks import require, shown
from .hugging_face import INDEX

FILES = {  # what `load` reads, by the settings, which tell that a page has it
    "original/params.json": [
        "original/params.json",
        "original/tokenizer.model",
        "original/consolidated.*.pth",
    ],
    "config.json": [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",  # it, or the next, has the template of dialogues
        "chat_template.jinja",
        "tokenizer.model",
        "model*.safetensors",
        INDEX,
    ],
}
NAME = re.compile(r"(original/)?\w[\w.-]*", re.ASCII)


class Page:
    r"""A model's page on a hub.

    settings: the name of its file with the settings, a key of FILES.
    files: those that `load` reads, with the hub's checksum of each.
    """

    def __init__(self, repo: str, endpoint=None):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=endpoint)
        self.repo, self.endpoint = repo, endpoint
        self.address = f"{api.endpoint}/{repo}"
        with explaining(self.address):
            info = api.model_info(repo, files_metadata=True)
        listed = {file.rfilename: file for file in info.siblings or []}
        found = [name for name in FILES if name in listed]
        require(found, f"{self.address} has neither {' nor '.join(FILES)}")
        self.revision, self.settings = info.sha, found[0]
        card = info.card_data
        self.licence = card.get("license") if card else None
        self.files = {}
        for name, file in listed.items():
            if any(fnmatchcase(name, each) for each in FILES[found[0]]):
                require(
                    NAME.fullmatch(name) and (file.lfs or file.blob_id),
                    f"{self.address} lists {shown(name)}, which has an "
                    "invalid name or no checksum: choose another page",
                )
                self.files[name] = file

    def has_given(self, folder: Path, name: str) -> bool:
        """Return whether a folder has a file with the hub's checksum."""
        file, listed = folder / name, self.files[name]
        if listed.lfs:
            return has_sha256(file, listed.lfs.sha256)
        if not file.is_file():
            return False
        data = file.read_bytes()  # a small file has git's own checksum
        blob = b"blob %d\0" % len(data) + data
        sha1 = hashlib.sha1(blob, usedforsecurity=False)
        return sha1.hexdigest() == listed.blob_id

    def download(self, names: list[str], folder: Path) -> None:
        """Download files, and compare each with its checksum."""
        from huggingface_hub import snapshot_download

        with explaining(self.address, "; what was downloaded is kept"):
            snapshot_download(
                self.repo,
                revision=self.revision,
                endpoint=self.endpoint,
                local_dir=folder,
                allow_patterns=names,
            )
        for name in names:
            if not self.has_given(folder, name):
                (folder / name).unlink(missing_ok=True)
                raise ValueError(
                    f"{folder / name} did not come as {self.address} has it, "
                    "by its checksum: try again"
                )


def has_sha256(file: Path, sha256: str) -> bool:
    """Return whether there is such a file, with this SHA-256."""
    if not file.is_file():
        return False
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == sha256


# -- errors ------------------------------------------------------------------


@contextmanager
def explaining(page: str, kept: str = "") -> Iterator[None]:
    """Raise a hub's error as a sentence; that of a disk as it is."""
    try:
        yield
    except Exception as error:
        raise explained(error, page, kept) from None


def explained(error: Exception, page: str, kept: str = "") -> Exception:
    """Return a hub's error as a sentence that says what to do."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    code = getattr(error, "errno", None)
    said = shown(" ".join(str(error).split()))
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return PermissionError(
            f"{page} is for those who accepted its licence: accept it on that "
            "page, and log in with `hf auth login`"
        )
    absent = errors.RepositoryNotFoundError, errors.HFValidationError
    if isinstance(error, absent) or status == 401:
        return ValueError(
            f"{page} does not exist, or is private: check the name, or log "
            "in with `hf auth login`"
        )
    if isinstance(error, ValueError):
        return ValueError(f"{page} gives what is no model's page ({said})")
    if code and not isinstance(error, (ConnectionError, TimeoutError)):
        return error
    return ConnectionError(
        f"{page} cannot be reached ({said}): check the network, or try again "
        f"later{kept}"
    )
