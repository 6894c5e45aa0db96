"""Download a model with huggingface_hub."""

import re
from pathlib import Path

from .checks import require, shown
from .hugging_face import INDEX
from .load import ROOT, load
from .save import save

FILES = {  # what `load` reads, by the file that tells that a page has it
    "original/params.json": [
        "original/params.json",
        "original/tokenizer.model",
        "original/consolidated.*.pth",
    ],
    "config.json": [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "model*.safetensors",
        INDEX,
    ],
}


def fetch(model="Llama-3.2-1B", data=ROOT / "data", *, endpoint=None) -> Path:
    r"""Download a model with huggingface_hub; return the folder to load.

    model: "Llama-3.2-1B", … of meta-llama, or OWNER/NAME.
    data: the folder that gets a folder of the model's name.
    endpoint: the hub's address; None: $HF_ENDPOINT, or the usual one.
    A page in Hugging Face's format is also written in Meta's, to `original/`,
    for notebooks 00 to 02, if Meta's can hold the model.
    Raises PermissionError, ValueError, ConnectionError or OSError.
    """
    from huggingface_hub import HfApi, snapshot_download

    repo = model if "/" in model else f"meta-llama/{model}"
    owner, _, name = repo.partition("/")
    # other owners' models are below the owner: two may have the same name
    target = Path(data) / (name if owner == "meta-llama" else repo)
    api = HfApi(endpoint=endpoint)
    page = f"{api.endpoint}/{repo}"
    try:
        info = api.model_info(repo)
        names = {file.rfilename for file in info.siblings or []}
        found = next((key for key in FILES if key in names), None)
        card = info.card_data
        print(licence(model, card.get("license") if card else None))
        if found:
            snapshot_download(
                repo,
                revision=info.sha,
                endpoint=endpoint,
                local_dir=target,
                allow_patterns=FILES[found],
            )
    except Exception as error:  # the hub's, the network's or the disk's
        raise explained(error, page, target) from None
    require(found, f"{page} has neither {' nor '.join(FILES)}")
    original = target / "original"
    if found == "config.json":
        try:
            save(load(target, device="cpu"), original)
        except ValueError as error:
            print(
                f"{target} is ready, but not for notebooks 00 to 02: {error}"
            )
            return target
    return original


def licence(model: str, name: str | None = None) -> str:
    """Say which licence a model's weights have; its page gives its name."""
    if found := re.search(r"Llama-(3(\.\d)?)", model):
        version = found[1].replace(".", "_")
        url = f"https://www.llama.com/llama{version}/license/"
        return f"The weights come under Meta's Llama Community License: {url}"
    name = shown(name) if name else "its page does not name it, read it there"
    return f"The weights come under a licence of their own: {name}"


def explained(error: Exception, page: str, target: Path) -> Exception:
    """Return a hub's or a disk's error as a sentence that says what to do."""
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
    if code and not isinstance(error, (ConnectionError, TimeoutError)):
        return OSError(code, f"{target} cannot be written to ({said})")
    return ConnectionError(
        f"{page} cannot be reached ({said}): check the network, or try again "
        "later; what was downloaded is kept"
    )
