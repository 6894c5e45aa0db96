r"""Download Meta's original files of a Llama 3 model."""

import re
from pathlib import Path

from .checkpoint import ROOT


def licence(model: str) -> str:
    """Where the licence of a model's weights is to be read."""
    found = re.search(r"Llama-3(?:\.(\d))?", model)
    version = "3" + (f"_{found[1]}" if found and found[1] else "")
    return (
        "The weights come under Meta's Llama Community License: "
        f"https://www.llama.com/llama{version}/license/"
    )


def fetch(model: str = "Llama-3.2-1B", data=ROOT / "data") -> Path:
    r"""Download `original/` of a model of meta-llama's on Hugging Face.

    A broken download goes on where it stopped when called again; a file has
    its final name only once it is whole.

    Args:
        model: "Llama-3.2-1B", "Llama-3.2-1B-Instruct", "Llama-3.1-8B", …
        data: the folder that gets a folder of the model's name.

    Returns:
        the folder to hand to `llamalib.load`.

    Raises:
        ValueError: for a model that is not there.
        RuntimeError: saying what to do: accept the licence, log in, get a
            network.
    """
    import huggingface_hub
    from huggingface_hub import errors

    repo = model if "/" in model else f"meta-llama/{model}"
    target = Path(data) / repo.split("/")[1]
    page = f"https://huggingface.co/{repo}"
    print(licence(model), flush=True)
    try:
        huggingface_hub.snapshot_download(
            repo, allow_patterns=["original/*"], local_dir=target
        )
    except errors.GatedRepoError:
        raise RuntimeError(
            f"{page} gives its files only to people who have accepted the "
            "licence on that page and are logged in: accept it, then "
            "`hf auth login` (in .venv/bin), then this command again"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ValueError(
            f"{page} is not there, or not for you to see: check the name, "
            "and log in with `hf auth login`"
        ) from None
    except errors.HFValidationError as error:
        raise ValueError(f"{model!r} is no model's name: {error}") from None
    except Exception as error:  # of which kind, depends on the HTTP client
        raise RuntimeError(
            f"{page} cannot be reached, or the line broke "
            f"({type(error).__name__}: {error}). Is there a network, and room "
            "on the disk? What was downloaded is kept: run the command again"
        ) from error
    folder = target / "original"
    if not (folder / "params.json").is_file():
        raise ValueError(f"{page} has no folder original/: not Meta's format")
    return folder
