r"""Download a model's files from Hugging Face.

A download that broke off is resumed. A file gets its name once it has the
size and the checksum that its page gives.
"""

import errno
import hashlib
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

from ..checks import expect
from ..files import ROOT

# what `load` reads, by the file that tells that a page has the format
FORMATS = {
    "original/params.json": r"original/(params\.json|tokenizer\.model|"
    r"consolidated\.\d\d\.pth)",
    "config.json": r"(config|generation_config|tokenizer|"
    r"model\.safetensors\.index)\.json|tokenizer\.model|"
    r"model(-\d+-of-\d+)?\.safetensors",
}
LLAMA_3 = re.compile(r"Llama-(3(\.\d)?)")
# by what went wrong: the exception to raise, and what it says
ERRORS = {
    "gated": (PermissionError, "{page} is for those who accepted its licence"),
    "login": (PermissionError, "{page} does not accept your login"),
    "absent": (ValueError, "{page} is not there, or not for you"),
    "name": (ValueError, "{page} is not a valid name like 'Llama-3.2-1B'"),
    "hub": (ConnectionError, "{page} answers {status} ({said})"),
    "network": (ConnectionError, "{page} cannot be reached ({said})"),
    "full": (OSError, "{target} has {free:,} bytes free ({said})"),
    "disk": (OSError, "{target} cannot be written to ({said})"),
}
LOGIN, KEPT = "`hf auth login` (in .venv/bin)", "what was downloaded is kept"
ADVICE = {
    PermissionError: f"accept the licence on that page, and log in: {LOGIN}",
    ValueError: f"check the name, or log in: {LOGIN}",
    ConnectionError: f"check the network, or try again later; {KEPT}",
    OSError: f"make room, or give another folder; {KEPT}",
}


def fetch(model="Llama-3.2-1B", data=ROOT / "data", *, endpoint=None) -> Path:
    r"""Download a model, and return the folder to give to `load`.

    Of a page in Hugging Face's format, Meta's files are written too, to
    `original/` in the folder, if they can hold the model.

    model: "Llama-3.2-1B", … of meta-llama, or OWNER/NAME.
    data: the folder that gets a folder of the model's name.
    endpoint: the hub's address; None: $HF_ENDPOINT, or the usual one.
    Raises one of ERRORS; ValueError for a page without such files, or whose
    model `load` refuses; and RuntimeError for a file that arrives with
    another size or checksum.
    """
    from huggingface_hub import HfApi, hf_hub_url

    repo = model if "/" in model else f"meta-llama/{model}"
    owner, _, name = repo.partition("/")
    # other owners' models are below the owner: two may have the same name
    target = Path(data) / (name if owner == "meta-llama" else repo)
    api = HfApi(endpoint=endpoint)
    page = f"{api.endpoint}/{repo}"
    is_llama_3 = LLAMA_3.search(model)
    if is_llama_3:  # before anything is downloaded
        print(licence(model), flush=True)
    with explain_errors(page, target):
        info = api.model_info(repo, files_metadata=True)
    if not is_llama_3:
        print(licence(model, (info.card_data or {}).get("license")))
    files = choose_files(info.siblings or [], page)
    is_metas = files[0].rfilename.startswith("original/")
    missing = [f for f in files if not is_whole(target / f.rfilename, f)]
    with explain_errors(page, target):
        target.mkdir(parents=True, exist_ok=True)
        parts = [part_of(file, target) for file in missing]
        needed = sum(file.size for file in missing)
        needed -= sum(p.stat().st_size for p in parts if p.is_file())
        print(plan(files, needed, target, is_metas), flush=True)
        check_disk_space(needed, target)
        for file in missing:
            where = dict(revision=info.sha, endpoint=api.endpoint)
            url = hf_hub_url(repo, file.rfilename, **where)
            download_file(file, url, target)
    return target / "original" if is_metas else write_metas(files, target)


def plan(files: list, needed: int, target: Path, is_metas: bool) -> str:
    """Say what is written where, and what the disk has."""
    free, size = shutil.disk_usage(target).free, sum(f.size for f in files)
    text = f"{needed:,} bytes to download to {target}, {free:,} are free"
    then = f"then Meta's format in {target / 'original'} for notebooks 00 to "
    done = is_metas or (target / "original" / "params.json").is_file()
    return text if done else f"{text}; {then}02, about {size:,} bytes more"


def write_metas(files: list, target: Path) -> Path:
    """Write Meta's format from Hugging Face's; return the folder to load."""
    from ..loading import load
    from .meta import save

    original = target / "original"
    done = original / "params.json"  # written last
    if done.is_file():  # `load` takes it
        newest = max((target / f.rfilename).stat().st_mtime for f in files)
        ok, older = done.stat().st_mtime >= newest, f"older than {target}"
        again = "newer: remove it, and run the command again"
        expect(ok, str(original), older, again)
        return original
    llama = load(target, device="cpu")
    try:
        check_disk_space(sum(file.size for file in files), target)
        save(llama, original)
    except (OSError, ValueError) as error:
        print(f"Meta's format was not written: {error}")
        need = "notebooks 00 to 02 need Meta's format and cannot run on it"
        print(f"{target} can be loaded, but {need}")
        return target
    return original


def licence(model: str, name: str | None = None) -> str:
    """Say which licence a model's weights have; its page gives its name."""
    found = LLAMA_3.search(model)
    if not found:
        name = name or "its page does not name it, read it there"
        return f"The weights come under a licence of their own: {name}"
    url = f"https://www.llama.com/llama{found[1].replace('.', '_')}/license/"
    return f"The weights come under Meta's Llama Community License: {url}"


def choose_files(listed: list, page: str) -> list:
    """Return the files to download of those that a page lists."""
    for needed, pattern in FORMATS.items():
        files = [f for f in listed if re.fullmatch(pattern, f.rfilename)]
        names = [file.rfilename for file in files]
        weights = [n for n in names if n.endswith((".pth", ".safetensors"))]
        if needed in names and weights:
            break
    else:
        raise ValueError(
            f"{page} has neither Meta's files in original/ nor config.json "
            "with safetensors: choose another page"
        )
    for file in files:
        what, found = f"{page}: {file.rfilename}", checksum_of(file)
        ok = re.fullmatch("[0-9a-f]{40,64}", str(found))
        expect(ok, f"{what}: the checksum", found, "one: is it the hub?")
        expect(type(file.size) is int, f"{what}: size", file.size, "a number")
    return files


def checksum_of(file) -> str | None:
    """Return a file's SHA-256 if it is in Git LFS, else git's checksum."""
    return file.lfs.sha256 if file.lfs is not None else file.blob_id


def is_whole(path: Path, file) -> bool:
    """Whether a path has the size and checksum that the page gives."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    # git's checksum begins with the kind of object and its size
    git = hashlib.sha1(f"blob {file.size}\0".encode())
    checksum = git if file.lfs is None else hashlib.sha256()
    with open(path, "rb") as opened:
        while part := opened.read(2**24):
            checksum.update(part)
    return checksum.hexdigest() == checksum_of(file)


def part_of(file, target: Path) -> Path:
    """Return the path of an incomplete file, another for each version."""
    return target / f"{file.rfilename}.{checksum_of(file)[:12]}.part"


def download_file(file, url: str, target: Path) -> None:
    r"""Download what the part lacks, verify it and give it its name.

    By http_get, since hf_hub_download of huggingface_hub 2.4 starts again in
    every call. Its client gives the token to no other host.
    """
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    print(f"{file.rfilename}, {file.size:,} bytes", flush=True)
    part = part_of(file, target)
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.is_file() and part.stat().st_size > file.size:
        part.unlink()
    with open(part, "ab") as opened:
        how = dict(resume_size=opened.tell(), expected_size=file.size)
        http_get(url, opened, headers=build_hf_headers(), **how)
    if not is_whole(part, file):
        part.unlink()
        problem = "arrived with a wrong size or checksum and was removed"
        raise RuntimeError(f"{url} {problem}: run the command again")
    part.replace(target / file.rfilename)


def check_disk_space(needed: int, target: Path) -> None:
    """Raise OSError if the disk has less room than needed."""
    if needed > shutil.disk_usage(target).free:
        raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed")


@contextmanager
def explain_errors(page: str, target: Path):
    """Raise the hub's and the disk's errors as sentences that say why."""
    try:
        yield
    except RuntimeError:  # ours
        raise
    except Exception as error:
        code = getattr(error, "errno", None)
        status = getattr(getattr(error, "response", None), "status_code", 0)
        kind, sentence = ERRORS[cause(error, status, code)]
        text = " ".join(str(error).split())[:160]
        facts = dict(page=page, status=status, target=target)
        facts["said"] = f"{type(error).__name__}: {text}"
        facts["free"] = target.is_dir() and shutil.disk_usage(target).free
        sentence = f"{sentence.format(**facts)}: {ADVICE[kind]}"
        # by its number an OSError becomes a PermissionError, …
        arguments = (code, sentence) if kind is OSError else (sentence,)
        raise kind(*arguments) from None


def cause(error: Exception, status: int, code: int | None) -> str:
    """Return the key of ERRORS for an exception."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError) or status == 403:
        return "gated"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "absent"
    if isinstance(error, errors.HFValidationError):
        return "name"
    if status:
        return "login" if status == 401 else "hub"
    if code is None or isinstance(error, (ConnectionError, TimeoutError)):
        return "network"
    return "full" if code == errno.ENOSPC else "disk"
