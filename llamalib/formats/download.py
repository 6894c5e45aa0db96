r"""Download a Llama's files from Hugging Face.

What is broken off goes on where it stopped; a file has its name only once it
is whole; and each is compared with the size and the checksum that the page
gives for it.
"""

import errno
import hashlib
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from ..files import ROOT

# what `llamalib.load` reads, in Meta's format and in Hugging Face's
METAS = r"original/(params\.json|tokenizer\.model|consolidated\.\d\d\.pth)"
HUGGING_FACES = (
    r"(config|generation_config|tokenizer)\.json|tokenizer\.model|"
    r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
)


LLAMA_3 = re.compile(r"Llama-3(?:\.(\d))?")


def licence(model: str, of_page: str | None = None) -> str:
    """Where the licence of a model's weights is to be read.

    Args:
        model: its name.
        of_page: the licence that its page names.
    """
    found = LLAMA_3.search(model)
    if not found:
        said = of_page or "which its page does not name: read it there"
        return f"The weights come under a licence of their own: {said}"
    version = "3" + (f"_{found[1]}" if found[1] else "")
    return (
        "The weights come under Meta's Llama Community License: "
        f"https://www.llama.com/llama{version}/license/"
    )


def fetch(
    model: str = "Llama-3.2-1B", data=ROOT / "data", *, endpoint=None
) -> Path:
    r"""Download a model's files.

    Meta's own, `original/`, where the page has them; else Hugging Face's.

    Args:
        model: "Llama-3.2-1B", "Llama-3.2-1B-Instruct", "Llama-3.1-8B", … of
            meta-llama, or OWNER/NAME.
        data: the folder that gets a folder of the model's name.
        endpoint: the hub's address; None: $HF_ENDPOINT, or its own.

    Returns:
        the folder to hand to `llamalib.load`.

    Raises:
        ValueError: for a model that is not there, or holds no such files.
        PermissionError: for one whose licence is to be accepted first.
        ConnectionError: without a network, or when the line breaks.
        OSError: without room on the disk.
        RuntimeError: for a file that did not arrive as it was sent.
    """
    from huggingface_hub import HfApi

    repo = model if "/" in model else f"meta-llama/{model}"
    api = HfApi(endpoint=endpoint)
    page = f"{api.endpoint}/{repo}"
    # of others below their name: two may have called a model the same
    owner, _, name = repo.partition("/")
    target = Path(data) / (name if owner == "meta-llama" else repo)
    with_answers = Answers(repo, page, target)
    if LLAMA_3.search(model):  # to be read before anything comes
        print(licence(model), flush=True)
    with with_answers:
        info = api.model_info(repo, files_metadata=True)
    files = wanted_files(info.siblings, page)
    if not LLAMA_3.search(model):
        card = info.card_data or {}
        print(licence(model, card.get("license")), flush=True)
    missing = [f for f in files if not is_whole(target / f.rfilename, f)]
    check_room(target, missing)
    for file in missing:
        print(f"{file.rfilename}, {file.size:,} bytes", flush=True)
        part = part_of(target, file)
        with with_answers:
            download(api.endpoint, repo, info.sha, file, part)
        keep_if_whole(part, target / file.rfilename, file, page)
    is_metas = files[0].rfilename.startswith("original/")
    return target / "original" if is_metas else target


def keep_if_whole(part: Path, path: Path, file, page: str) -> None:
    """Give a part its final name, or RuntimeError if it is not the file."""
    if not is_whole(part, file):
        part.unlink()
        raise RuntimeError(
            f"{file.rfilename} of {page} did not arrive as it was sent: its "
            "size or checksum is not the page's. It was taken away again: "
            "run the command again"
        )
    part.replace(path)


def part_of(target: Path, file) -> Path:
    """Where a file lies until it is whole; of another version, elsewhere."""
    return target / f"{file.rfilename}.{checksum_of(file)[:12]}.part"


def download(endpoint: str, repo: str, revision: str, file, part: Path):
    """What is still missing of a part, with a bar that shows how much."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    where = dict(revision=revision, endpoint=endpoint)
    url = hf_hub_url(repo, file.rfilename, **where)
    place = get_hf_file_metadata(url).location  # may be another server's
    headers = build_hf_headers()
    if urlsplit(place).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # is the hub's to know alone
    part.parent.mkdir(parents=True, exist_ok=True)
    done = part.stat().st_size if part.is_file() else 0
    if done > file.size:
        part.unlink()
        done = 0
    if done == file.size:
        return
    with open(part, "ab") as opened:
        http_get(
            place,
            opened,
            resume_size=done,
            headers=headers,
            expected_size=file.size,
            displayed_filename=file.rfilename,
        )


def wanted_files(siblings, page: str) -> list:
    """Of a page's files those to download, or ValueError."""
    for patterns, needed in (
        (METAS, "original/params.json"),
        (HUGGING_FACES, "config.json"),
    ):
        found = [
            file
            for file in siblings or ()
            if re.fullmatch(patterns, file.rfilename)
        ]
        weights = (".pth", ".safetensors")
        names = [file.rfilename for file in found]
        if needed in names and any(n.endswith(weights) for n in names):
            for file in found:
                check_said(file, page)
            return found
    raise ValueError(
        f"{page} holds neither Meta's files (original/params.json, …) nor "
        "config.json with safetensors: another kind of model, or only its "
        "quantized form. Take another page"
    )


def checksum_of(file) -> str | None:
    """A page's checksum of a file: SHA-256 of a large one, git's of others."""
    return file.lfs.sha256 if file.lfs is not None else file.blob_id


def check_said(file, page: str) -> None:
    """RuntimeError if a page does not say what is to be compared."""
    checksum = checksum_of(file)
    known = isinstance(checksum, str) and re.fullmatch(
        "[0-9a-f]{40}|[0-9a-f]{64}", checksum
    )
    if type(file.size) is not int or not known:
        raise RuntimeError(
            f"{page} gives no size and checksum of {file.rfilename}, so that "
            "nothing could be compared: is it the hub?"
        )


def is_whole(path: Path, file) -> bool:
    """Whether a file is there, of the size and checksum that a page gives."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    if file.lfs is not None:
        return digest(path, hashlib.sha256()) == file.lfs.sha256
    # small files lie in git: its checksum begins with the kind and the size
    as_git = hashlib.sha1(f"blob {file.size}\0".encode())
    return digest(path, as_git) == file.blob_id


def digest(path: Path, checksum) -> str:
    """Of a file's bytes, after what the checksum has seen."""
    with open(path, "rb") as opened:
        while part := opened.read(2**24):
            checksum.update(part)
    return checksum.hexdigest()


def check_room(target: Path, files: list) -> None:
    """OSError if the disk has no room for these files."""
    parts = [part_of(target, file) for file in files]
    done = sum(part.stat().st_size for part in parts if part.is_file())
    needed = sum(file.size for file in files) - done
    if needed > free_at(target):
        raise no_room(f"the files take {needed:,} bytes", target)


def free_at(target: Path) -> int:
    """Bytes free on the disk of a folder that may not be there yet."""
    while not target.exists():
        target = target.parent
    return shutil.disk_usage(target).free


def no_room(said: str, target: Path) -> OSError:
    """What to raise where the disk is full, or would be."""
    free = free_at(target)
    return OSError(
        errno.ENOSPC,
        f"{said}, and the disk of {target} has {free:,} free: make room, or "
        "give another folder; what was downloaded is kept",
    )


class Answers:
    r"""Within, each refusal of the hub is one sentence that says what to do.

    Args:
        repo: OWNER/NAME.
        page: its address.
        target: the folder that is written to.
    """

    def __init__(self, repo: str, page: str, target: Path):
        self.repo, self.page, self.target = repo, page, target

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, Exception):
            raise self.answer(error) from None

    def answer(self, error: Exception) -> Exception:
        """What to raise instead."""
        from huggingface_hub import errors

        page = self.page
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if isinstance(error, errors.GatedRepoError) or status == 403:
            return PermissionError(
                f"{page} gives its files only to people who have accepted "
                "the licence on that page and are logged in: accept it "
                "there, then `hf auth login` (in .venv/bin), then this "
                "command again"
            )
        if status == 401 and not isinstance(
            error, errors.RepositoryNotFoundError
        ):
            return PermissionError(
                f"{page} does not take your login, which may have ended: "
                "`hf auth login` (in .venv/bin), then this command again"
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return ValueError(
                f"{page} is not there, or not for you to see: check the "
                "name, and log in with `hf auth login` (in .venv/bin)"
            )
        if isinstance(error, errors.HFValidationError):
            return ValueError(
                f"{self.repo!r} is no model's name: wanted one like "
                "'Llama-3.2-1B' or 'OWNER/NAME'"
            )
        if getattr(error, "errno", None) == errno.ENOSPC:
            return no_room("there is more to write", self.target)
        if isinstance(error, PermissionError):
            return PermissionError(
                f"{self.target} may not be written to by you: give another "
                "folder, or yourself the right"
            )
        of_the_line = isinstance(error, (ConnectionError, TimeoutError))
        if getattr(error, "errno", None) is not None and not of_the_line:
            said = error.strerror or str(error)
            return OSError(
                error.errno,
                f"{self.target} cannot be written to ({said}): give another "
                "folder",
            )
        return self.line_answer(error, status)

    def line_answer(self, error: Exception, status: int) -> ConnectionError:
        """Where the hub or the way to it fails."""
        kept = "What was downloaded is kept: run the command again"
        if status >= 500:
            return ConnectionError(
                f"{self.page} answers {status}: the hub has a fault, or too "
                f"much to do. {kept} later"
            )
        if status:
            return ConnectionError(
                f"{self.page} answers {status}: {first_line(error)}. If that "
                "is no help, update huggingface_hub"
            )
        return ConnectionError(
            f"{self.page} cannot be reached, or the line broke "
            f"({first_line(error)}). Is there a network? {kept}"
        )


def first_line(error: Exception) -> str:
    """Its kind and the beginning of what it says."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:160]}"
