"""Checks at the doors: a plain sentence for each mistake."""

import json
import math
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from numbers import Integral, Rational, Real
from pathlib import Path

LFS = b"version https://git-lfs.github.com/spec/"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0 and C1
HTML = (b"<!doctype html", b"<html", b"<head", b"<body")


def require(ok, problem: str) -> None:
    """Raise ValueError unless ok."""
    if not ok:
        raise ValueError(problem)


def is_count(n) -> bool:
    """Return whether n is a whole number from 1; True is not."""
    return is_whole(n) and n >= 1


def is_whole(n) -> bool:
    """Return whether n is a whole number, also NumPy's; True is not."""
    return isinstance(n, Integral) and not isinstance(n, bool)


def is_number(x) -> bool:
    """Return whether x is a finite number, also NumPy's; True is not."""
    if is_whole(x):  # PyTorch takes ints of 64 bits
        return -(2**63) <= x < 2**63
    is_real = isinstance(x, Real) and not isinstance(x, Rational)
    return is_real and math.isfinite(x)


def check_sampling(
    temperature=1.0, top_k=None, top_p=None, *, greedy: bool = True
) -> None:
    """Raise ValueError for sampling arguments that are out of range.

    greedy: whether temperature may be 0, which takes the argmax.
    """
    t, k, p = temperature, top_k, top_p
    if not is_number(t):
        raise ValueError(f"temperature must be a number, got {t!r:.80}")
    if t < 0:
        raise ValueError(f"temperature must be >= 0, got {t}")
    if t == 0 and not greedy:
        raise ValueError("temperature must be > 0, got 0 (0 is the argmax)")
    if 0 < t < 1e-20:  # logits divided by less may exceed float32
        raise ValueError(f"temperature must be 0 or at least 1e-20, got {t}")
    if k is not None and not is_count(k):
        raise ValueError(f"top_k must be a whole number >= 1, got {k!r:.80}")
    if p is not None and not (is_number(p) and 0 < p <= 1):
        raise ValueError(f"top_p must be in (0, 1], got {p!r:.80}")
    if p is not None and p < 1e-20:  # float32 may round it to 0
        raise ValueError(f"top_p must be at least 1e-20, got {p}")


def check_generate(
    llama, prompts, max_new_tokens, *, seed, stop, compile, **sampling
) -> tuple[list[list[int]], int | None, frozenset[int]]:
    """Check the arguments of `generate` and `generate_batch`.

    Return the prompts as lists of ids, the seed, and the ids to stop at.
    Raise ValueError for an argument that is wrong.
    """
    n = max_new_tokens
    if not hasattr(llama, "config"):
        kind = type(llama).__name__
        raise ValueError(f"llama must be a Llama, got a {kind}; call load()")
    processes = getattr(llama, "processes", None)
    if processes:  # first: all raise the same, or all sample the same tokens
        facts = dict(max_new_tokens=n, stop=stop, compile=compile)
        seed = processes.share(seed, prompts, **facts, **sampling)
    check_sampling(**sampling)
    if not is_count(n):
        raise ValueError(
            f"max_new_tokens must be a whole number >= 1, got {n!r:.80}"
        )
    check_seed(seed)
    if type(compile) is not bool:
        raise ValueError(f"compile must be True or False, got {compile!r:.80}")
    if compile:
        check_compile(llama)
    prompts = check_prompts(prompts, llama.config.vocab_size)
    longest, most = max(map(len, prompts)), llama.config.context_length
    if longest + int(n) > most:
        raise ValueError(
            f"max_new_tokens={n} exceeds the context: {most} positions minus "
            f"{longest} prompt tokens leave {max(0, most - longest)}"
        )
    seed = seed if seed is None else int(seed)  # PyTorch takes no NumPy's
    return prompts, seed, check_stop(llama, stop)


def check_first_pass(llama) -> None:
    """Let a model's passes raise ValueError, up to one without NaN logits.

    A sampler would turn them into the token 0, again and again.
    """

    def check(module, args, logits):
        if logits.isnan().any():
            raise ValueError(
                f"the logits of {llama.name} are NaN: a weight is NaN or "
                "infinite (`load(…, check=True)` says which), or a number "
                "exceeds the dtype: take float32"
            )
        hook.remove()

    hook = llama.register_forward_hook(check)


def check_seed(seed) -> None:
    """Raise ValueError unless PyTorch's generators take the seed."""
    if seed is not None and not (is_whole(seed) and 0 <= seed < 2**63):
        raise ValueError(
            "seed must be a whole number from 0 to 2**63 - 1, or None, got "
            f"{seed!r:.80}"
        )


def check_compile(llama) -> None:
    """Raise an error if this model's decode step cannot be compiled.

    ValueError for a model; RuntimeError on a CPU without a C++ compiler, or
    if PyTorch's cannot be imported.
    """
    problem = None
    if getattr(llama, "processes", None):
        problem = "with several processes"
    elif llama.device.type == "mps":
        problem = "on a Mac's GPU"
    elif has_hooks(llama):
        problem = "with hooks"
    if problem:
        raise ValueError(
            f"compile=True does not work {problem}; use compile=False"
        )
    try:  # what was interrupted once may fail to be imported again
        import torch._inductor.compile_fx  # noqa: F401
    except (AttributeError, ImportError) as error:
        raise RuntimeError(
            f"PyTorch's compiler cannot be imported ({error}): if an import "
            "was interrupted before, restart the kernel"
        ) from None
    if llama.device.type == "cpu":
        require_compiler()


def has_hooks(llama) -> bool:
    """Return whether a hook runs in a forward pass, a global one included."""
    from torch.nn.modules import module as all_modules

    hooks = [
        all_modules._global_forward_hooks,
        all_modules._global_forward_pre_hooks,
    ]
    for each in llama.modules():
        hooks += [each._forward_hooks, each._forward_pre_hooks]
    return any(hooks)


def require_compiler() -> None:
    """Raise RuntimeError unless PyTorch can call a C++ compiler."""
    import torch
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except RuntimeError:
        raise RuntimeError(
            "compile=True on a CPU needs a C++ compiler, and none was found: "
            "install g++ or clang++ (on Debian and Ubuntu by `apt install "
            "g++`, on macOS by `xcode-select --install`; on Windows the Visual "
            "Studio Build Tools), or set CXX to one"
        ) from None
    if " " in (folder := os.path.dirname(torch.__file__)):
        raise RuntimeError(
            f"compile=True on a CPU fails if torch is below a folder with a "
            f"space in its name ({folder}): install it into another, as by "
            "`make run VENV=~/llama`"
        )


def check_prompts(prompts, V: int) -> list[list[int]]:
    """Return each prompt as a list of ids below V, or raise ValueError."""
    shape = getattr(prompts, "shape", True)  # of a single number: ()
    is_list = isinstance(prompts, Iterable) and shape
    if isinstance(prompts, (str, bytes)) or not is_list:
        raise ValueError(
            f"prompts must be a list of prompts, got {prompts!r:.80}"
        )
    prompts = list(prompts)
    if not prompts:
        raise ValueError("prompts must hold at least one prompt, got none")
    found = []
    for i, ids in enumerate(prompts):
        name = "prompt_ids" if len(prompts) == 1 else f"prompts[{i}]"
        what = "a list of token ids"
        if isinstance(ids, (Set, Mapping, Iterator)):  # not a list
            kind = type(ids).__name__
            raise ValueError(f"{name} must be {what}, got a {kind}")
        found.append(check_ids(name, ids, V, what))
        if not found[i]:
            raise ValueError(f"{name} must hold at least one token id")
    return found


def check_stop(llama, stop) -> frozenset[int]:
    """Return the ids to stop at; None selects the tokenizer's."""
    if stop is None:
        return frozenset(getattr(llama.tokenizer, "stop_tokens", ()))
    what = "a collection of token ids, or () for none"
    return frozenset(check_ids("stop", stop, llama.config.vocab_size, what))


def check_ids(name: str, ids, V: int, what: str) -> list[int]:
    """Return ids as a list of ints from 0 to V - 1, or raise ValueError."""
    if isinstance(ids, str):
        advice = (
            "; call llama.tokenizer.encode(text, bos=True, eos=False) first"
        )
        is_prompt = name.startswith("prompt")  # not `stop`, not `decode`
        raise ValueError(
            f"{name} must be {what}, got a str{advice if is_prompt else ''}"
        )
    if isinstance(ids, (bytes, bytearray, memoryview)) or not isinstance(
        ids, Iterable
    ):
        raise ValueError(f"{name} must be {what}, got {ids!r:.80}")
    shape = tuple(getattr(ids, "shape", (0,)))
    if len(shape) != 1:
        raise ValueError(f"{name} must be {what}, got a tensor {shape}")
    # convert a tensor in one call: per-element reads each wait for a GPU
    found = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    found = [as_int(i, name, what) for i in found]
    for i in (min(found), max(found)) if found else ():
        if not 0 <= i < V:
            raise ValueError(
                f"{name} contains {i}, but the vocabulary has {V} tokens (was "
                "another tokenizer used?)"
            )
    return found


def as_int(i, name: str, what: str) -> int:
    """Return an id of any library as an int, or raise ValueError."""
    try:
        if "bool" not in str(getattr(i, "dtype", type(i))):
            return operator.index(i)
    except TypeError:
        pass  # a float, a text, several numbers
    raise ValueError(f"{name} must be {what}, but holds {i!r:.80}")


def read_start(file: Path, size: int = 1024) -> bytes:
    """Return the first bytes, or raise OSError naming the file."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing, or is a folder")
    try:
        with open(file, "rb") as opened:
            return opened.read(size)
    except PermissionError:
        raise PermissionError(
            f"Permission denied: {file}. Try chmod u+r {file}"
        ) from None


def require_file(folder: Path, name: str) -> Path:
    """Return folder/name, or raise FileNotFoundError."""
    path = folder / name
    if path.is_file():
        return path
    problem = f"{folder} has no {name} (found: {listing(folder)})"
    if os.path.lexists(path):
        problem = f"{path} is a folder, a pipe or a broken link"
    raise FileNotFoundError(f"{problem}: download it again")


def listing(folder: Path, most: int = 6) -> str:
    """Return the names in a folder, for an error message."""
    names = sorted(shown(p.name) for p in folder.iterdir())
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "nothing"


def reject_lookalikes(file: Path) -> None:
    """Raise ValueError for an empty file, a Git LFS pointer or HTML.

    Such files are often saved under the name of the real one: the pointer by
    git without Git LFS, the page by a browser that had to log in.
    """
    start = read_start(file)
    if not start:
        raise ValueError(f"{file} is empty: download it again")
    if start.startswith(LFS):
        size = re.search(rb"\nsize (\d+)", start)
        of = f" to a file of {int(size[1]):,} bytes" if size else ""
        raise ValueError(
            f"{file} is a Git LFS pointer{of}: run `git lfs pull` in its "
            "folder, or download it again"
        )
    if start.lstrip(b"\xef\xbb\xbf \r\n\t").lower().startswith(HTML):
        raise ValueError(
            f"{file} is an HTML page, perhaps a login page: log in and "
            "download it again"
        )


def read_json(file: Path) -> dict:
    """Read a JSON object, or raise ValueError naming the file and problem."""
    reject_lookalikes(file)
    try:  # utf-8-sig: with or without a byte-order mark
        text = file.read_text(encoding="utf-8-sig")
        found = json.loads(text, object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise ValueError(f"{file} must hold a JSON object, got a {kind}")
    return found


def reject_duplicate_keys(pairs: list[tuple]) -> dict:
    """Return a dict of the pairs, or raise ValueError for a repeated key."""
    found = {}
    for key, value in pairs:  # JSON silently keeps the last of duplicate keys
        if key in found:
            raise ValueError(f"the key {key!r:.80} appears twice")
        found[key] = value
    return found


def shown(text) -> str:
    """Return the start of a text from a file, in one printable line."""
    return repr(str(text)[:120])[1:-1][:120]


def printable(text: str) -> str:
    r"""Return a text with control characters escaped, except \n and \t.

    A terminal obeys them: a model's text could change its title, its colours
    or the clipboard.
    """
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def damaged(file: Path, error: BaseException) -> ValueError:
    """Return the error for a file that a library cannot read."""
    reason = shown(str(error).strip().split("\n")[0]) or type(error).__name__
    return ValueError(
        f"{file} is damaged or incomplete ({reason}): download it again"
    )
