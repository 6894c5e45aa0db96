"""Which rows are measured, with which tasks, and how often."""

from dataclasses import dataclass, field, replace

PROMPT = 6  # ids in the short prompt
ALL = ("generate", "prefill", "position", "batch")
GENERATE = ("generate",)


@dataclass(frozen=True)
class Row:
    """One peer with one kind of weights, and its tasks."""

    peer: str
    dtype: str
    tasks: tuple[str, ...] = ALL

    @property
    def name(self) -> str:
        return f"{self.peer} {self.dtype}"


@dataclass(frozen=True)
class Section:
    """Peers that take turns; all must agree with the first.

    Attributes:
        checkpoint: "1b" or "pocket".
        prompt: ids in the prompt of a generation.
        new: number of ids per generation.
        rounds: rounds of generation; slower tasks have fewer.
        prefills, positions, batches: lengths, positions and rows.
        repeats: generations in a row whose memory is measured.
        caches: numbers of positions whose cache is measured.
    """

    checkpoint: str
    rows: tuple[Row, ...]
    prompt: int = PROMPT
    new: int = 32
    rounds: int = 9
    prefills: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    repeats: int = 0
    caches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The sections that are measured on a device."""

    device: str
    sections: dict[str, Section] = field(default_factory=dict)


PREFILLS = 512, 4096
POSITIONS = 128, 2048, 8192, 32768
BATCHES = 1, 8, 32

CPU = Plan(
    "cpu",
    {
        "1b": Section(
            "1b",
            (
                Row("ours", "bfloat16"),
                Row("ours compile=True", "bfloat16"),
                Row("ours", "int8"),
                Row("ours", "int4", GENERATE),
                Row("ours compile=True", "int8", GENERATE),
                Row("ours compile=True", "int4", GENERATE),
                Row("transformers", "bfloat16"),
                # compiled for one shape; another shape takes minutes
                Row("transformers compiled", "bfloat16", GENERATE),
                Row("llama.cpp", "bfloat16"),
                Row("llama.cpp", "q8_0"),
                Row("naive", "bfloat16", GENERATE),
            ),
            prefills=PREFILLS,
            positions=POSITIONS,
            batches=BATCHES,
            repeats=200,
            caches=(128, 32768),
        ),
        "float32": Section(
            "1b",
            (
                Row("ours", "bfloat16", GENERATE),
                Row("ours compile=True", "bfloat16", GENERATE),
                Row("ours", "float32", GENERATE),
                Row("transformers", "bfloat16", GENERATE),
                Row("transformers", "float32", GENERATE),
            ),
            rounds=5,
        ),
        "pocket": Section(
            "pocket",
            (
                Row("ours", "float32", GENERATE),
                Row("ours", "bfloat16", GENERATE),
                Row("transformers", "float32", GENERATE),
                Row("llama.cpp", "float32", GENERATE),
            ),
            new=128,
            repeats=200,
        ),
    },
)

CUDA = Plan(
    "cuda",
    {
        "1b": Section(
            "1b",
            (
                Row("ours", "bfloat16"),
                Row("ours compile=True", "bfloat16"),
                Row("transformers", "bfloat16"),
                Row("transformers compiled", "bfloat16", GENERATE),
                Row("gpt-fast", "bfloat16"),
                Row("llama.cpp", "bfloat16"),
                Row("naive", "bfloat16", GENERATE),
            ),
            # the protocol of the published records: 127 timed steps
            prompt=32,
            new=128,
            rounds=5,
            prefills=PREFILLS,
            positions=POSITIONS,
            batches=BATCHES,
            repeats=200,
            caches=(128, 32768),
        ),
        # last, because compiling takes a minute that the 1b may need
        "quantized": Section(
            "1b",
            (
                Row("ours", "bfloat16", GENERATE),
                Row("ours compile=True", "int8", GENERATE),
                Row("ours compile=True", "int4", GENERATE),
            ),
            prompt=32,
            new=128,
            rounds=5,
        ),
    },
)


def rehearsal(plan: Plan) -> Plan:
    """Return a plan of seconds, to see on a CPU that all of it runs.

    One of ours and one of the others stand for all; none is compiled.
    """
    few = dict(new=3, rounds=1, repeats=2, caches=(10,))
    few |= dict(prefills=(20,), positions=(16,), batches=(1, 3))
    section, peers = plan.sections["1b"], ("ours", "transformers")
    rows = tuple(row for row in section.rows if row.peer in peers)
    return replace(plan, sections={"1b": replace(section, rows=rows, **few)})


PLANS = {plan.device: plan for plan in (CPU, CUDA)}
