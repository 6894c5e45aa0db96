r"""The pipe between the judge and a worker: values both ways.

The judge sends pickles. The worker, which nobody trusts, sends JSON and the
bytes of its tensors, never code: the judge checks types, sizes and depth.
Each end numbers the functions and iterators that it hands out; the other may
call or advance these alone.
"""

import builtins
import functools
import inspect
import io
import json
import math
import pickle
import re
import struct
import types
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from ..course.judge import explain

DEPTH, TEXT, DATA = 20, 2 * 2**20, 16 * 2**20  # at most: levels, bytes, bytes
ITEMS = 10_000  # at most, of a dict or set
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
DTYPES = (DTYPES + "uint16 uint32 uint64 complex64 complex128").split()
DTYPES = {f"torch.{name}": getattr(torch, name) for name in DTYPES}
GROUPS = dict(list=list, tuple=tuple, set=set, frozenset=frozenset)


class Lost(BaseException):
    """The worker is gone, or sent what cannot be read."""


class Failed(Exception):
    """An error in the worker; `explained` says which, and where."""

    def __init__(self, explained: str):
        super().__init__(explained)
        self.explained = explained


class Far:
    """An object of the other end: its type's name and its repr, no more."""

    def __init__(self, wire, number: int, text: str, names=()):
        self.wire, self.number, self.text, self.items = wire, number, text, []
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [inspect.Parameter(n, kind) for n in dict.fromkeys(names)]
        self.__signature__ = inspect.Signature(names)

    def __repr__(self):
        return self.text


class Function(Far):
    """A function of the other end; it may change its arguments in place."""

    def __call__(self, *args, **kwargs):
        """Return its result, or raise its error."""
        result, after = self.wire.ask("call", self.number, args, kwargs)
        updated([*args, *kwargs.values()], after)
        return result


class Steps(Far, Iterator):
    """An iterator of the other end; a step may overwrite earlier items."""

    def __next__(self):
        item, earlier = self.wire.ask("next", self.number)
        updated(self.items, earlier)
        self.items.append(item)
        return item


def plain(value):
    """Return what of a value may have changed; None for other objects."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    simple = bool, int, float, complex, str, bytes, Tensor, np.ndarray
    return value if isinstance(value, simple) else None


def updated(old, new):
    """Return a value, changed in place to what the other end made of it."""
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        if old.shape == new.shape:
            old.detach().copy_(new)
        else:
            old.data = new.to(old.dtype)
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        old[...] = new
    elif isinstance(old, dict) and isinstance(new, dict):
        items = {k: updated(old.get(k), v) for k, v in new.items()}
        old.clear()
        old.update(items)
    elif isinstance(old, (list, tuple)) and isinstance(new, list):
        items = [updated(*pair) for pair in zip_longest(old[: len(new)], new)]
        if isinstance(old, list):
            old[:] = items
    elif new is not None:
        return new
    return old


class Wire:
    """One end of the pipe; objects: what the other end may call, by number."""

    def __init__(self, read, write, objects=()):
        self.read, self.write = read, write
        self.objects, self.given, self.weights = list(objects), {}, {}

    def ask(self, *question) -> list:
        """Return the other end's answer; answer its questions meanwhile."""
        self.send(question)
        while True:
            kind, *values = self.receive()
            if kind == "value":
                return values
            if kind == "stop" and question[0] == "next":
                raise StopIteration
            if kind == "stop":
                raise Lost("sent what cannot be read")
            if kind == "error":
                raise self.error(*values)
            self.serve(kind, *values)

    def serve(self, kind: str, number: int, *given) -> None:
        """Answer one question: call a function, or advance an iterator."""
        try:
            if kind == "next":
                items = self.given.setdefault(number, [])
                item = next(self.objects[number])
                self.send(("value", item, plain(items)))
                items.append(item)
            else:
                args, kwargs = given
                result = self.objects[number](*args, **kwargs)
                after = plain([*args, *kwargs.values()])
                self.send(("value", result, after))
        except StopIteration:
            self.send(("stop",))
        except (Exception, SystemExit) as error:
            self.send(("error", type(error).__name__, explain(error)))

    def send(self, message: tuple) -> None:
        """Write a message; raise Lost if nobody reads it."""
        data = self.packed(message)
        try:
            self.write.write(data)
            self.write.flush()
        except (OSError, ValueError):
            raise Lost from None

    def kept(self, value) -> int:
        """Let the other end call this object; return its number."""
        self.objects.append(value)
        return len(self.objects) - 1


def importable(value) -> bool:
    """Return whether the worker has this function, too."""
    module, name = value.__module__, getattr(value, "__qualname__", "<")
    return "<" not in name and not module.startswith("llamalib.course.nb")


class Judge(Wire):
    """The judge's end."""

    def packed(self, message: tuple) -> bytes:
        """Return a message; a function is a number, and its repr stays."""

        def number(value):
            own = isinstance(value, (types.FunctionType, functools.partial))
            if own and not importable(value):
                return Function.__name__, self.kept(value), None
            if isinstance(value, torch.nn.Parameter):  # sent once
                sent = id(value) in self.weights
                self.weights[id(value)] = value
                return "weight", id(value), None if sent else value.data
            if isinstance(value, Iterator):
                return Steps.__name__, self.kept(value), None

        data = io.BytesIO()
        pickler = pickle.Pickler(data)
        pickler.persistent_id = number
        pickler.dump(message)
        return data.getvalue()

    def receive(self) -> list:
        """Read a message; raise Lost if there is none that can be read."""
        sizes = struct.unpack("<QQ", self.take(16))
        if sizes[0] > TEXT or sizes[1] > DATA:
            raise Lost(f"sent {sum(sizes):,} bytes at once")
        text, self.data = map(self.take, sizes)
        self.left = len(self.data)  # bytes that no tensor has taken
        try:
            kind, *values = self.unpacked(json.loads(text))
            if len(values) == {"stop": 0, "next": 1, "call": 3}.get(kind, 2):
                return [kind, *values]
        except Exception:  # forged: what it raises depends on how
            pass
        raise Lost("sent what cannot be read")

    def take(self, size: int) -> bytes:
        """Read exactly this many bytes, or raise Lost."""
        found = self.read.read(size)
        if len(found) < size:
            raise Lost
        return found

    def error(self, kind: str, text: str) -> Failed:
        """Return an error of the worker."""
        return Failed(masked(str(text)))

    def unpacked(self, tree, depth=0):
        """Return the value; raise one error or another for a forged tree."""
        if not isinstance(tree, list):
            return tree
        if depth > DEPTH:
            raise ValueError
        tag, *rest = tree
        if len(rest) > 2 * ITEMS and tag in ("dict", "set", "frozenset"):
            raise ValueError  # equal hashes take quadratic time
        if tag == "tensor":
            return self.tensor(*rest)
        if tag == "object":
            return self.object(*rest)
        found = [self.unpacked(each, depth + 1) for each in rest]
        if tag == "dict":
            return dict(zip(found[::2], found[1::2], strict=True))
        if tag in GROUPS:
            return GROUPS[tag](found)
        (tensor,) = found
        if tag == "complex":
            return tensor.item()
        array = tensor.numpy()
        kinds = {"array": array, "number": array[()]}
        return array.tobytes() if tag == "bytes" else kinds[tag]

    def tensor(self, kind, shape, grad, start, size) -> Tensor:
        """Return a tensor of bytes that came with the message."""
        dtype, data = DTYPES[kind], self.data[start : start + size]
        self.left -= size
        if min([start, size, self.left, *shape]) < 0 or len(shape) > 64:
            raise ValueError
        if not len(data) == size == math.prod(shape) * dtype.itemsize:
            raise ValueError
        found = torch.tensor(np.frombuffer(data, np.uint8))
        # a forged truth value may be neither 0 nor 1
        found = found != 0 if dtype == torch.bool else found.view(dtype)
        return found.reshape(shape).requires_grad_(grad)

    def object(self, number, name, text, calls, steps, names) -> Far:
        """Return a stand-in for any other object."""
        base = Function if calls else Steps if steps else Far
        name = re.sub(r"\W", "_", name)[:40]
        names = [n for n in names[:20] if n.isidentifier()]
        return type(name, (base,), {})(self, number, masked(text), names)


def masked(text: str) -> str:
    """Return a worker's text, cut, without addresses in memory."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text[:1000])


class Worker(Wire):
    """The worker's end."""

    def receive(self) -> list:
        """Read a message, or raise Lost at the end."""

        def far(given):
            kind, number, rest = given
            if kind != "weight":
                return globals()[kind](self, number, kind)
            if rest is not None:
                weight = torch.nn.Parameter(rest, requires_grad=False)
                self.weights[number] = weight
            return self.weights[number]

        unpickler = pickle.Unpickler(self.read)
        unpickler.persistent_load = far
        try:
            return list(unpickler.load())
        except EOFError:
            raise Lost from None

    def error(self, kind: str, text: str) -> Exception:
        """Return an error of the judge's function, to be raised here."""
        return getattr(builtins, kind, RuntimeError)(text.split(": ", 1)[-1])

    def packed(self, message: tuple) -> bytes:
        """Return a message as bytes; ValueError if it is too large."""
        self.data = bytearray()
        text = json.dumps(self.tree(message)).encode()
        sizes = len(text), len(self.data)
        if sizes[0] > TEXT or sizes[1] > DATA:
            raise ValueError(f"the result is too large: {sum(sizes):,} bytes")
        return struct.pack("<QQ", *sizes) + text + self.data

    def tree(self, value, depth=0):
        """Return a value as JSON: a scalar, or a list with a tag first."""
        if depth > DEPTH:
            raise ValueError(f"the result is nested more than {DEPTH} deep")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            return self.tensor(value)
        for tag, kind in dict(
            bytes=(bytes, bytearray), complex=complex, array=np.ndarray,
            number=np.generic,
        ).items():  # fmt: skip
            if isinstance(value, kind):
                value = np.frombuffer(value, "u1") if tag == "bytes" else value
                return [tag, self.tensor(torch.tensor(value))]
        for kind in (int, float, str):  # of a subclass
            if isinstance(value, kind):
                return kind(value)
        if isinstance(value, dict):
            value, tag = [x for pair in value.items() for x in pair], "dict"
        elif isinstance(value, (Sequence, set, frozenset)):
            found = (n for n, t in GROUPS.items() if isinstance(value, t))
            tag = next(found, "list")
        else:
            return self.object(value)
        return [tag, *(self.tree(each, depth + 1) for each in value)]

    def tensor(self, value: Tensor) -> list:
        """Return a tensor's form; its bytes go after the JSON."""
        data = value.detach().cpu().resolve_conj().resolve_neg()
        data = data.contiguous().reshape(-1).view(torch.uint8).numpy()
        start, form = len(self.data), (str(value.dtype), list(value.shape))
        self.data += data.tobytes()
        return ["tensor", *form, value.requires_grad, start, data.size]

    def object(self, value) -> list:
        """Return what the judge learns of any other object."""
        calls, steps, names = callable(value), isinstance(value, Iterator), []
        try:
            names = [*inspect.signature(value).parameters]
        except (TypeError, ValueError):
            pass
        form = type(value).__name__, repr(value)[:200], calls, steps, names
        return ["object", self.kept(value), *form]
