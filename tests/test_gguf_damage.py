"""A GGUF file with any damage in its header has a clear error, or opens.

The tests know where each number and each text of a header is, and change it.
What opens is the same model, or another whole one, such as one with another
norm_eps. Damage inside of a tensor cannot be seen: the format has no checksum.
"""

import random
import re
import struct
import sys
import time
import tracemalloc
import warnings
from collections import Counter
from contextlib import contextmanager

import gguf as ggml
import pytest
import torch

import llamalib
from llamalib import gguf
from llamalib.tensors import tensor_shapes
from tests.gguf_files import library_facts, write_gguf
from tests.helpers import random_llama, small_config, small_ranks
from tests.test_gguf import llama_of
from tests.test_huggingface import gpt2_kind

PLAIN = dict(device="cpu", dtype=torch.float32)
TEXT = "The foxes aren't aa, 12 ab"
LONGEST, WORDS = 20, 600  # seconds for a file; letters of an error
ROOM = 256 * 2**20  # bytes that one file may ask the system for, at most
ALIGNMENT = 32

# -- a header and its parts --------------------------------------------------

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
UINT8, UINT32, INT32, FLOAT32, BOOL = 0, 4, 5, 6, 7
STRING, ARRAY, UINT64, FLOAT64 = 8, 9, 10, 12


class Cursor:
    """Reads parts of a file, [what it is, its bytes], one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, what, n):
        self.at += n
        return [what, self.data[self.at - n : self.at]]

    def text(self, what):
        length = self.take("length", 8)
        return [length, self.take(what, number(length))]

    def value(self, kind):
        if kind == STRING:
            return self.text("text")
        if kind != ARRAY:
            return [self.take("value", SIZES[kind])]
        parts = [self.take("kind of entries", 4), self.take("count", 8)]
        kind, n = map(number, parts)
        name = "entry" if kind == STRING else "value"
        for _ in range(n):
            parts += self.value(kind)
        return [[name if x == "text" else x, data] for x, data in parts]

    def fact(self):
        parts = [*self.text("key"), self.take("kind", 4)]
        return parts + self.value(number(parts[-1]))

    def info(self):
        parts = [*self.text("name"), self.take("n_dims", 4)]
        parts += [self.take("dim", 8) for _ in range(number(parts[-1]))]
        return [*parts, self.take("type", 4), self.take("offset", 8)]


def number(part):
    return int.from_bytes(part[1], "little")


class Header:
    """The parts of a file; `join` makes a file of them again."""

    def __init__(self, data):
        cursor = Cursor(data)
        names = "magic version n_tensors n_facts".split()
        self.head = [
            cursor.take(name, n) for name, n in zip(names, (4, 4, 8, 8))
        ]
        self.facts = [cursor.fact() for _ in range(number(self.head[3]))]
        self.infos = [cursor.info() for _ in range(number(self.head[2]))]
        self.data = data[cursor.at + -cursor.at % ALIGNMENT :]
        assert self.join() == data

    def copy(self):
        new = object.__new__(Header)
        for name in ("facts", "infos"):
            groups = [[list(p) for p in g] for g in getattr(self, name)]
            setattr(new, name, groups)
        new.head, new.data = [list(part) for part in self.head], self.data
        return new

    def parts(self):
        groups = self.head, *self.facts, *self.infos
        return [part for group in groups for part in group]

    def count(self):
        self.head[2][1] = struct.pack("<Q", len(self.infos))
        self.head[3][1] = struct.pack("<Q", len(self.facts))

    def header(self):
        return b"".join(data for _, data in self.parts())

    def join(self):
        header = self.header()
        return header + bytes(-len(header) % ALIGNMENT) + self.data


def text(words, what="text"):
    data = words if isinstance(words, bytes) else words.encode()
    return [["length", struct.pack("<Q", len(data))], [what, data]]


def fact(key, kind, value: bytes):
    return [*text(key, "key"), ["kind", struct.pack("<I", kind)], ["", value]]


def info(name, dims=(8,), kind=0, offset=0, n_dims=None):
    n = len(dims) if n_dims is None else n_dims
    more = struct.pack(f"<I{len(dims)}QIQ", n, *dims, kind, offset)
    return [*text(name, "name"), ["", more]]


def entries(kind, n, data=b""):
    return struct.pack("<IQ", kind, n) + data


# -- changes -----------------------------------------------------------------

POWERS = [2**n for n in (7, 8, 15, 16, 20, 24, 31, 32, 40, 48, 62, 63, 64)]
EDGES = [*range(13), 32, *POWERS, *(n - 1 for n in POWERS), 10**9]
FLOATS = 0.0, 1e-6, 1e-3, 1.0, -1.0, 1e4, 1e6, 1e30, float("inf"), float("nan")
LETTERS = [b"\0", b"\n", b"\x1b[31m", b"\x7f", b"\xff", b"..", b" ", b"", b"a"]
LETTERS += [" \u2028\u202e".encode(), "\U000e0001".encode(), "é".encode()]
NUMBERS = {"version", "n_tensors", "n_facts", "length", "kind", "count"}
NUMBERS |= {"kind of entries", "n_dims", "dim", "type", "offset", "value"}
TEXTS = {"key", "name", "text", "entry"}


def some(r, header, names):
    """One part: each name is as frequent as any other."""
    found = [part for part in header.parts() if part[0] in names and part[1]]
    name = r.choice(sorted({part[0] for part in found}))
    return r.choice([part for part in found if part[0] == name])


def set_number(r, header):
    part = some(r, header, NUMBERS)
    n, old = len(part[1]), number(part)
    edges = [*EDGES, old + 1, old - 1, 2 * old, old // 2, -old]
    new = r.choice([*edges, r.getrandbits(8 * n)]) % 2 ** (8 * n)
    part[1] = new.to_bytes(n, "little")
    if n == 4 and part[0] == "value" and r.random() < 0.5:
        part[1] = struct.pack("<f", r.choice(FLOATS))


def flip_a_bit(r, header):
    part = some(r, header, NUMBERS | TEXTS | {"magic"})
    at, bit = r.randrange(len(part[1])), 1 << r.randrange(8)
    part[1] = bytes(b ^ bit * (i == at) for i, b in enumerate(part[1]))


def overwrite(r, header):
    """Other bytes in a text of the same length."""
    part = some(r, header, TEXTS)
    at, letters = r.randrange(len(part[1])), r.choice(LETTERS)
    part[1] = (part[1][:at] + letters + part[1][at:])[: len(part[1])]


def rewrite(r, header):
    """A text of another length, which its header gives right."""
    parts = header.parts()
    old = some(r, header, TEXTS)
    other = some(r, header, {old[0]})[1]
    at = r.randrange(len(old[1]) + 1)
    longer = old[1][:at] + r.choice(LETTERS) * r.choice([1, 9, 3000])
    new = r.choice([other, longer + old[1][at:], old[1][:at], b""])
    index = next(i for i, part in enumerate(parts) if part is old)
    parts[index - 1][1], old[1] = struct.pack("<Q", len(new)), new


def retype(r, header):
    """An entry of another type, with a value of that type."""
    group = r.choice(header.facts)
    kind = r.choice([*SIZES, STRING, ARRAY])
    value = bytes(SIZES.get(kind, 0))
    if kind in SIZES and r.random() < 0.7:
        value = r.choice(EDGES) % 2 ** (8 * len(value))
        value = value.to_bytes(SIZES[kind], "little")
    if kind == STRING:
        value = struct.pack("<Q", 2) + r.choice([b"ab", b"\xff\xff", b"\0\0"])
    if kind == ARRAY:
        of = r.choice([UINT8, INT32, FLOAT32, BOOL, STRING, ARRAY])
        n, size = r.choice([0, 1, 5, 556]), SIZES.get(of, 8)
        value = entries(of, n, bytes(n * size))
    group[2:] = [["kind", struct.pack("<I", kind)], ["value", value]]


def drop(r, header):
    groups = r.choice([header.facts, header.infos])
    groups.pop(r.randrange(len(groups)))
    if r.random() < 0.8:
        header.count()


def repeat(r, header):
    groups = r.choice([header.facts, header.infos])
    groups.insert(r.randrange(len(groups)), r.choice(groups))
    header.count()


def swap(r, header):
    """The names, or all else, of two tensors or entries."""
    groups = r.choice([header.facts, header.infos])
    one, other = r.sample(groups, 2)
    part = slice(0, 2) if r.random() < 0.5 else slice(0, None)
    one[part], other[part] = other[part], one[part]


def add_alignment(r, header):
    n = r.choice([0, 1, 2, 8, 31, 32, 64, 2**16, 2**31])
    value = struct.pack("<I", n)
    header.facts.append(fact("general.alignment", UINT32, value))
    header.count()


def replace_data(r, header):
    """The end of the file is cut off, or something follows."""
    n = r.choice([0, 1, 31, 32, len(header.data) - 1, 5000])
    header.data = r.choice([header.data[:n], header.data[:-n], header.data])
    header.data += bytes(r.choice([0, 1, 32, 999]))


def flip_a_number(r, header):
    """A bit inside of a tensor."""
    at, data = r.randrange(len(header.data)), bytearray(header.data)
    data[at] ^= 1 << r.randrange(8)
    header.data = bytes(data)


CHANGES = [set_number] * 9 + [flip_a_bit] * 4 + [overwrite, rewrite] * 2
CHANGES += [retype] * 3 + [drop, repeat, swap, add_alignment]
CHANGES += [replace_data, flip_a_number]


def mutated(r, header) -> tuple[str, bytes]:
    """A file with one or two changes, and their names."""
    header, names = header.copy(), []
    for _ in range(r.choice([1, 1, 1, 2])):
        change = r.choice(CHANGES)
        change(r, header)
        names.append(change.__name__)
    data, n = header.join(), len(header.header())
    if r.random() < 0.1:  # what moves all that follows
        at, m = r.randrange(min(n, r.choice([50, n]))), r.randrange(9)
        end = r.choice([data[at + m :], data[at:], b""])
        data = data[:at] + r.choice([b"", r.randbytes(m)]) + end
        names.append("move")
    return " ".join(names), data


# -- what comes of it --------------------------------------------------------


@contextmanager
def strict():
    """Refuse warnings, and on Linux more than ROOM bytes of new memory."""
    with warnings.catch_warnings(), little_memory():
        warnings.simplefilter("error")
        yield


@contextmanager
def little_memory():
    if sys.platform != "linux":
        yield
        return
    import resource

    with open("/proc/self/statm") as opened:
        now = int(opened.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def use(llama) -> dict:
    """Run a model; return all that makes it the same as another."""
    tokenizer, V = llama.tokenizer, llama.config.vocab_size
    found = dict(vars(llama.config))
    found["weights"] = {n: x.numpy() for n, x in llama.state_dict().items()}
    ids = tokenizer.encode(TEXT, bos=True, eos=True, allowed_special="all")
    assert 0 < len(ids) < 40 and 0 <= min(ids) and max(ids) < V
    with torch.no_grad():
        logits = llama(torch.tensor(ids[: llama.config.context_length]))
    assert logits.shape[-1] == V and logits.isfinite().all()
    assert isinstance(tokenizer.decode(range(V)), str)
    stop = tokenizer.stop_tokens
    assert all(0 <= i < V for i in stop)
    found["tokens"] = [tokenizer.decode([i]) for i in range(V)]
    found["ids"] = ids, stop, tokenizer.bos_id, tokenizer.eos_id
    found["special tokens"] = tokenizer.special_tokens
    found["system"] = tokenizer.system
    shapes = {n: tuple(x.shape) for n, x in found["weights"].items()}
    assert shapes == tensor_shapes(llama.config)
    found["weights"] = {n: x.tobytes() for n, x in found["weights"].items()}
    return found


class Fuzzer:
    """Opens files; it knows what the undamaged one has, and its memory."""

    def __init__(self, file):
        self.file = file
        self.header = Header(file.read_bytes())
        self.longest, self.most, self.usual = 0.0, 0, 2**40
        for _ in range(2):  # the first time imports modules
            self.most = 0
            self.first = self.opened(self.header.join())
        self.usual = self.most

    def opened(self, data, room=0) -> dict | str:
        r"""What a file has, or the words of its error.

        room: bytes of memory that it may take besides twice its own, and what
        the undamaged one takes.
        """
        self.file.write_bytes(data)
        start = time.perf_counter()
        tracemalloc.start()
        try:
            llama = llamalib.load(self.file, **PLAIN)
        except (ValueError, FileNotFoundError) as error:
            assert type(error) in (ValueError, FileNotFoundError), repr(error)
            found = str(error)
            assert str(self.file) in found and found.isprintable()
            assert len(found) < WORDS, found
        else:
            found = None
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        seconds = time.perf_counter() - start
        assert seconds < LONGEST
        self.longest = max(self.longest, seconds)
        self.most = max(self.most, peak)
        assert peak <= self.usual + 2 * len(data) + room, peak
        return found or use(llama)

    def outcome(self, data) -> str:
        found = self.opened(data)
        if isinstance(found, str):
            return "refused"
        other = [name for name in found if found[name] != self.first[name]]
        return f"other {', '.join(other)}" if other else "the same"


@pytest.fixture(scope="module")
def fuzzers(tmp_path_factory):
    """Llama 3's tokenizer, eight bits, scaled RoPE, tied; and SmolLM2's."""
    folder = tmp_path_factory.mktemp("gguf")
    llama = llama_of(use_scaled_rope=True, rope_scaling_factor=32.0)
    llama3 = write_gguf(folder / "llama3.gguf", llama, "Q8_0")
    library = gpt2_kind(special=("<|im_start|>", "<|im_end|>"))
    config = small_config(vocab_size=library.get_vocab_size())
    llama = random_llama(config, tied=False)
    llama.tokenizer = llamalib.Tokenizer(small_ranks())  # the facts replace it
    facts = library_facts(library, "smollm")
    facts |= {"tokenizer.chat_template": "{{ 'ab' }}"}
    smollm = write_gguf(folder / "smollm.gguf", llama, "F16", more=facts)
    return {file.stem: Fuzzer(file) for file in (llama3, smollm)}


def run(fuzzer, n, seed=0):
    """Open n damaged files; return how often each outcome was, and all bad."""
    counts, bad = Counter(), []
    with strict():
        for i in range(n):
            r = random.Random(f"{seed} {i}")
            names, data = mutated(r, fuzzer.header)
            try:
                counts[fuzzer.outcome(data)] += 1
            except BaseException as error:
                bad.append((i, names, repr(error)[:300]))
    return counts, bad


@pytest.mark.parametrize("n", [75, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["llama3", "smollm"])
def test_any_damage_has_a_clear_error(fuzzers, kind, n, capfd):
    counts, bad = run(fuzzers[kind], n)
    assert not bad
    assert capfd.readouterr() == ("", "")
    others = sum(counts[name] for name in counts if name.startswith("other"))
    assert counts["refused"] > n / 2
    assert counts["the same"] and others


# -- files that someone made -------------------------------------------------


def put(header, key, kind, value: bytes):
    """Replace an entry, or add one."""
    names = [group[1][1].decode() for group in header.facts]
    group = fact(key, kind, value)
    if key in names:
        header.facts[names.index(key)] = group
    else:
        header.facts.append(group)
    header.count()


def put_text(header, key, data):
    put(header, key, STRING, struct.pack("<Q", len(data)) + data)


def put_texts(header, key, found):
    data = b"".join(struct.pack("<Q", len(t)) + t for t in found)
    put(header, key, ARRAY, entries(STRING, len(found), data))


def put_number(header, key, n):
    put(header, key, UINT32, struct.pack("<I", n))


def tensor(header, name, *dims, kind=0, offset=None, n_dims=None):
    """Replace what is said of a tensor, or add a tensor at the end."""
    names = [group[1][1].decode() for group in header.infos]
    if name not in names:
        header.infos.append(list(header.infos[-1]))
        names.append(name)
    i = names.index(name)
    if offset is None:
        offset = number(header.infos[i][-1])
    header.infos[i] = info(name, dims, kind, offset, n_dims)
    header.count()


def set_head(header, i, n):
    header.head[i][1] = n.to_bytes(len(header.head[i][1]), "little")


def swap_bytes(header):
    for part in header.parts():
        if part[0] in NUMBERS:
            part[1] = part[1][::-1]


def repeat_last(header, groups):
    groups.append(groups[-1])
    header.count()


def many_facts(header, n):
    more = struct.pack("<IB", UINT8, 1)
    data = [struct.pack("<Q", 8) + b"%08d" % i + more for i in range(n)]
    set_head(header, 3, len(header.facts) + n)
    header.facts.append([["", b"".join(data)]])


def many_tensors(header, n):
    more = struct.pack("<IQIQ", 1, 0, 0, 0)
    data = [struct.pack("<Q", 8) + b"%08d" % i + more for i in range(n)]
    header.infos = [[["", b"".join(data)]]]
    set_head(header, 2, n)


def many_lists(header, n, length):
    for i in range(n):
        put_texts(header, f"x{i}", [b""] * length)


def end_in_a_list(header):
    header.facts, header.infos, header.data = [], [], b""
    put(header, "x", ARRAY, entries(STRING, 2, struct.pack("<Q", 1000)))


def short(n, *first):
    """n texts of two or more letters, each another."""
    return [*first, *(b"%02d" % i for i in range(n - len(first)))]


TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
MERGES, PRE = "tokenizer.ggml.merges", "tokenizer.ggml.pre"
ARCH, ALIGN = "general.architecture", "general.alignment"
BLOCKS, EPS = "llama.block_count", "llama.attention.layer_norm_rms_epsilon"
WIDTH, NORM = "llama.rope.dimension_count", "output_norm.weight"
M, WIDE = 2**20, "\U0001f999".encode()
MADE = [
    # lists
    ("a list of lists", lambda h: put(h, "x", ARRAY, entries(ARRAY, 1, entries(UINT8, 1, b"a")))),
    ("a list of 9223372036854775808", lambda h: put(h, "x", ARRAY, entries(UINT8, 2**63))),
    ("a list of 1000000000 entries", lambda h: put(h, "x", ARRAY, entries(BOOL, 10**9))),
    ("a list of 1048576 entries", lambda h: put_texts(h, "x", [b""] * M)),
    ("a list of 1048576 entries", lambda h: put_texts(h, TOKENS, short(M))),
    ("a list of 1048576 entries", lambda h: put_texts(h, MERGES, [b"a b"] * M)),
    ("a list of 1048576 entries", lambda h: put(h, TYPES, ARRAY, entries(UINT8, M, bytes(M)))),
    ("has 1[0-9]{4} texts", lambda h: many_lists(h, 9, 2**11)),
    ("8000 tokens, 8000 unique", lambda h: (put_texts(h, TOKENS, short(8000)), put_texts(h, MERGES, short(8000)))),
    ("a text in a list is too long", lambda h: put_texts(h, TOKENS, short(9, b"a" * M))),
    ("a text in a list is too long", lambda h: put(h, "x", ARRAY, entries(STRING, 2, b"\xff" * 16))),
    ("a text in a list is too long", end_in_a_list),
    ("a token has no letters", lambda h: put_texts(h, TOKENS, short(9, b""))),
    ("can't decode byte 0xed", lambda h: put_texts(h, TOKENS, [b"\xed\xa0\x80"])),
    ("token_type must be a list of int", lambda h: put(h, TYPES, ARRAY, entries(FLOAT32, 9, bytes(36)))),
    ("token_type must be a list of int", lambda h: put(h, TYPES, ARRAY, entries(BOOL, 9, bytes(9)))),
    ("a type of token is new", lambda h: put(h, TYPES, ARRAY, entries(UINT8, 9, b"\7" * 9))),
    ("tokens must be a list of str", lambda h: put(h, TOKENS, ARRAY, entries(UINT8, 9, bytes(9)))),
    ("tokens must be a list of str", lambda h: put_text(h, TOKENS, b"abcde")),
    ("merges must be a list of str", lambda h: put_number(h, MERGES, 5)),
    (r"its tokenizer \(gpt2, \[1, 2\]\)", lambda h: put(h, PRE, ARRAY, entries(UINT8, 2, b"\1\2"))),
    ("head_count must be .* got .0, 0, 0", lambda h: put(h, "llama.attention.head_count", ARRAY, entries(UINT8, 5000, bytes(5000)))),
    # texts
    ("it ends too early", lambda h: put(h, "x", STRING, struct.pack("<Q", 2**63))),
    ("it ends too early", lambda h: put(h, "x", STRING, b"\xff" * 8)),
    ("a text of 1048576 bytes", lambda h: put_text(h, ARCH, b"a" * M)),
    ("a text of 1048580 bytes", lambda h: put_text(h, BLOCKS, WIDE + b"a" * M)),
    ("a text of 1048576 bytes", lambda h: put_number(h, "a" * M, 5)),
    ("a text of 1048576 bytes", lambda h: tensor(h, "a" * M, 8)),
    (r"must be llama, got '\\x1b\[31m", lambda h: put_text(h, ARCH, b"\x1b[31m\n")),
    (r"its tokenizer \(gpt2, \\x1b\[31m", lambda h: put_text(h, PRE, b"\x1b[31m\n")),
    ("Duplicate tokenizer", lambda h: repeat_last(h, h.facts)),
    # tensors
    ("duplicated tensor with name", lambda h: repeat_last(h, h.infos)),
    (r"out of its place: \\x1b\]0;x", lambda h: tensor(h, "\x1b]0;x\7\u202e" * 30, 8)),
    (r"out of its place: \\U000e0001", lambda h: tensor(h, "\U000e0001" * 300, 8)),
    ("out of its place:", lambda h: tensor(h, "", 8)),
    ("out of its place: blk.99999", lambda h: tensor(h, f"blk.{'9' * 5000}.attn_q.weight", 8)),
    ("out of its place: blk", lambda h: [group[-1].__setitem__(1, bytes(8)) for group in h.infos]),
    ("out of its place: ", lambda h: tensor(h, NORM)),
    ("it ends too early", lambda h: tensor(h, NORM, 64, n_dims=10**9)),
    ("maximum supported dimension", lambda h: tensor(h, NORM, 64, *[1] * 99)),
    ("cannot reshape", lambda h: tensor(h, NORM, 2**32, 2**32)),
    ("it ends too early", lambda h: tensor(h, NORM, 2**32 + 64, 2**32)),
    ("array is too big", lambda h: tensor(h, NORM, 2**40, 2**40, 0)),
    ("array is too big", lambda h: tensor(h, NORM, 0, 2**62)),
    ("it ends too early", lambda h: tensor(h, NORM, 2**64 - 1)),
    ("overflow", lambda h: tensor(h, NORM, 64, offset=2**64 - 32)),
    ("it ends too early", lambda h: tensor(h, NORM, 64, offset=2**63)),
    ("is not a valid GGMLQuantizationType", lambda h: tensor(h, NORM, 64, kind=4)),
    ("is not a valid GGMLQuantizationType", lambda h: tensor(h, NORM, 64, kind=2**32 - 1)),
    ("1 bytes follow the last tensor", lambda h: setattr(h, "data", h.data + b"a")),
    ("bytes follow the last tensor", lambda h: many_tensors(h, 4000)),
    ("it has 131072 entries", lambda h: many_tensors(h, 2**17)),
    # numbers
    ("it has 13[0-9]{4} entries", lambda h: many_facts(h, 2**17)),
    ("is not a valid GGUFValueType", lambda h: put(h, "x", 13, b"a")),
    ("for 2147483647 layers, but .*20 tensors", lambda h: put_number(h, BLOCKS, 2**31 - 1)),
    ("1073741823 factors|asks for", lambda h: put_number(h, WIDTH, 2**31 - 2)),
    ("epsilon must be a number .* inf", lambda h: put(h, EPS, FLOAT64, struct.pack("<d", 1e300))),
    ("has the version 0 of GGUF", lambda h: set_head(h, 1, 0)),
    ("has the version 99 of GGUF", lambda h: set_head(h, 1, 99)),
    ("has the version 50331648 of GGUF", swap_bytes),
    ("alignment: must be .* power of two", lambda h: put_number(h, ALIGN, 0)),
    ("alignment: must be .* power of two", lambda h: put_number(h, ALIGN, 3)),
    ("Bad type for general.alignment", lambda h: put_text(h, ALIGN, b"3")),
    ("it ends too early", lambda h: put_number(h, ALIGN, 2**31)),
    ("out of its place|bytes follow", lambda h: put_number(h, ALIGN, 1)),
]  # fmt: skip


@pytest.mark.parametrize("said, change", MADE)
def test_a_made_file_takes_little_memory(fuzzers, said, change, monkeypatch):
    """Python's objects for ITEMS tensors take a few million bytes."""
    monkeypatch.setattr(gguf, "TEXTS", 2**14)  # a million take a second
    header = fuzzers["llama3"].header.copy()
    change(header)
    with strict():
        found = fuzzers["llama3"].opened(header.join(), room=2**23)
    assert isinstance(found, str) and re.search(said, found), found


def test_an_infinite_scale(fuzzers):
    """No warning comes with the error."""
    header = fuzzers["llama3"].header.copy()
    name = b"blk.0.ffn_up.weight"
    at = number(next(g[-1] for g in header.infos if g[1][1] == name))
    # a block of Q8_0 starts with its scale: infinity times 0 is NaN
    block = struct.pack("<eb", float("inf"), 0)
    header.data = header.data[:at] + block + header.data[at + 3 :]
    with strict():
        found = fuzzers["llama3"].opened(header.join())
    assert "blk.0.ffn_up.weight has NaN or infinite numbers" in found


def test_a_model_without_special_tokens(fuzzers):
    """They would have ids beyond the embedding."""
    header = fuzzers["smollm"].header.copy()
    n = number(next(g for g in header.facts if g[1][1] == TYPES.encode())[4])
    put(header, TYPES, ARRAY, entries(UINT8, n, b"\1" * n))
    assert "no token is special" in fuzzers["smollm"].opened(header.join())


@pytest.mark.parametrize("n", range(1, 24))
def test_a_file_of_few_bytes(fuzzers, n):
    said = {1: "is no GGUF file", 4: "the version 0", 5: "it ends too early"}
    found = fuzzers["llama3"].opened(fuzzers["llama3"].header.join()[:n])
    assert said[max(k for k in said if k <= n)] in found


def test_what_is_rare_but_right(fuzzers, tmp_path, monkeypatch):
    """Another alignment, other integers, a long token, entries of others."""
    fuzzer = fuzzers["llama3"]
    header = fuzzer.header.copy()
    set_head(header, 1, 2)  # version 2 differs for big-endian machines alone
    put(header, BLOCKS, UINT64, struct.pack("<Q", 2))
    put_text(header, "mradermacher.note", b"\xff" * 2**15)
    many_facts(header, 4000)
    found = fuzzer.opened(header.join(), room=2**23)
    assert found == fuzzer.first
    header = fuzzer.header.copy()
    tokens = next(g for g in header.facts if g[1][1] == TOKENS.encode())
    tokens[-2][1], tokens[-1][1] = struct.pack("<Q", 200), b"a" * 200
    found = fuzzer.opened(header.join())
    assert [name for name in found if found[name] != fuzzer.first[name]] == [
        "tokens",
        "special tokens",
    ]
    monkeypatch.setattr(ggml.gguf_writer, "GGUF_DEFAULT_ALIGNMENT", 64)
    more, llama = {ALIGN: 64}, llama_of(n_layers=3)
    file = write_gguf(tmp_path / "a.gguf", llama, "Q8_0", more=more)
    tokens = torch.arange(9)
    expected = write_gguf(tmp_path / "b.gguf", llama, "Q8_0")
    assert file.read_bytes() != expected.read_bytes()
    found, expected = (llamalib.load(x, **PLAIN) for x in (file, expected))
    assert torch.equal(found(tokens), expected(tokens))
