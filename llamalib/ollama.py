r"""Models that `ollama pull` brought: a GGUF file in Ollama's store.

The store has a manifest per model, manifests/HOST/OWNER/MODEL/TAG, which
lists layers. A layer is a file, blobs/sha256-…; one of them has the weights.
Nothing is downloaded.
"""

import os
import re
import sys
from pathlib import Path

from .checks import damaged, read_json, require, shown
from .hub import has_sha256

PREFIX = "ollama:"
USUAL = "registry.ollama.ai", "library"  # host and owner
WEIGHTS = "application/vnd.ollama.image.model"
ADAPTER = "application/vnd.ollama.image.adapter"
MOST = 10  # names in an error


def name_in(path) -> str | None:
    """Return the name in a path like ollama:llama3.2:1b, or None."""
    word = Path(path).as_posix()
    return word.removeprefix(PREFIX) if word.startswith(PREFIX) else None


def find(name: str) -> Path:
    r"""Return the file with the weights of a model.

    name: MODEL, MODEL:TAG, OWNER/MODEL:TAG or HOST/OWNER/MODEL:TAG.
    Raises FileNotFoundError or PermissionError for a store, a model or a
    file, ValueError for a manifest that is damaged or not of one file.
    """
    *place, model = name.split("/")
    model, _, tag = model.partition(":")
    place = [*USUAL[: 2 - len(place)], *place]
    manifests = all_manifests()  # only these are opened, whatever the name
    manifest = manifests.get("/".join([*place, model]) + f":{tag or 'latest'}")
    if manifest:
        return weights_of(manifest, name)
    if not manifests:
        raise FileNotFoundError(
            f"Ollama has no models in {' or '.join(map(str, stores()))}: run "
            f"`ollama pull {shown(name)}`, or set OLLAMA_MODELS to its folder"
        )
    usual = "/".join(USUAL) + "/"
    names = sorted(full.removeprefix(usual) for full in manifests)
    more = f", … ({len(names)} in all)" if names[MOST:] else ""
    there = ", ".join(map(shown, names[:MOST]))
    raise FileNotFoundError(
        f"Ollama has no model {shown(name)}; it has {there}{more}"
    )


def stores() -> list[Path]:
    """Return the folders in which Ollama may keep its models."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return [Path(chosen)]
    homes = [os.path.expanduser("~")]  # on every system
    if sys.platform == "linux":  # its service has a user of its own
        homes.append("/usr/share/ollama")
    return [Path(home, ".ollama", "models") for home in homes]


def all_manifests() -> dict[str, Path]:
    """Return each manifest by its model, HOST/OWNER/MODEL:TAG."""
    found: dict[str, Path] = {}
    closed = None
    for store in stores():
        try:
            os.listdir(store / "manifests")  # glob keeps an error to itself
        except PermissionError:
            closed = store
        except OSError:  # no such folder
            continue
        for file in store.glob("manifests/*/*/*/[!.]*"):
            if os.path.isfile(file):
                full = f"{'/'.join(file.parts[-4:-1])}:{file.name}"
                found.setdefault(full, file)
    if closed and not found:
        raise PermissionError(
            f"Permission denied: {closed}. Try `sudo usermod -aG ollama "
            "$USER`, then log in again"
        )
    return found


def weights_of(manifest: Path, name: str) -> Path:
    """Return the file of the one layer of weights that a manifest lists."""
    try:
        layers = [
            (str(layer["mediaType"]), str(layer["digest"]))
            for layer in read_json(manifest)["layers"]
        ]
    except (KeyError, TypeError) as error:
        raise damaged(manifest, error) from None
    digests = [digest for kind, digest in layers if kind == WEIGHTS]
    n = len(digests)
    require(n == 1, f"{manifest} has {n} files of weights, expected one")
    require(
        ADAPTER not in dict(layers),
        f"{manifest} has an adapter, which llamalib does not apply",
    )
    require(  # so that it is a name, and no path to another folder
        re.fullmatch("sha256:[0-9a-f]{64}", digests[0]),
        f"{manifest}: a digest is sha256: and 64 digits, got "
        f"{digests[0]!r:.80}",
    )
    file = manifest.parents[4] / "blobs" / digests[0].replace(":", "-")
    if not os.path.isfile(file):
        raise FileNotFoundError(f"{file} is missing: run `ollama pull {name}`")
    return file


def check_digest(file: Path) -> None:
    """Raise ValueError for a blob without the SHA-256 that is its name."""
    found = re.fullmatch("sha256-([0-9a-f]{64})", file.name)
    require(
        not found or has_sha256(file, found[1]),
        f"{file} is damaged: its SHA-256 is not its name. Remove it, and run "
        "`ollama pull` again",
    )
