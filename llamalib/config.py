r"""Meta's `params.json`, field by field."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from .checks import expect
from .files import read_json, require_file
from .swiglu import ffn_hidden_dim

# keys of Meta's other checkpoints, which do not run here
VISION = ("chunk_size", "max_num_chunks", "num_cross_attention_layers")
OTHER_KINDS = dict.fromkeys([f"vision_{key}" for key in VISION], "vision")
OTHER_KINDS |= {"quantization_args": "quantized", "lora_args": "quantized"}
MAX_COUNT = 2**31
BOUNDS = {  # of the fields that are not whole numbers
    "ffn_dim_multiplier": (1e-10, 1e10),  # for widths below MAX_COUNT
    "norm_eps": (1e-37, 1.0),  # normal in float32; a norm's own scale
    "rope_theta": (1.0, 1e30),  # so that every frequency is at most 1
    "rope_scaling_factor": (1.0, 2.0**18),  # contexts below MAX_COUNT
}


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    """The shape of a Llama, in Meta's names; ValueError names a bad field."""

    dim: int  # D, the width of the residual stream
    n_layers: int  # L, the number of blocks
    n_heads: int  # H, query heads per layer
    n_kv_heads: int  # KV, key/value heads per layer; divides n_heads
    vocab_size: int  # V, rows of the embedding
    multiple_of: int  # with ffn_dim_multiplier gives hidden_dim
    ffn_dim_multiplier: float | None
    norm_eps: float  # added under RMSNorm's root
    rope_theta: float  # the base of RoPE's frequencies
    use_scaled_rope: bool = False  # whether low frequencies are divided
    # by how much; Meta's params.json does not say (None: as published)
    rope_scaling_factor: float | None = None
    # hd, and the positions the model is made for, if not as Meta's models
    head_width: int | None = field(default=None, repr=False)
    context_length: int | None = field(default=None, repr=False)

    def __post_init__(self):
        self._check()
        # configs of the same model are equal, however they are written
        factor = self.rope_scaling_factor or published_scaling_factor(self.dim)
        factor = factor if self.use_scaled_rope else None
        normal = {"rope_scaling_factor": factor}
        if self.head_width == self.dim / self.n_heads:
            normal["head_width"] = None
        if self.context_length == (8192, 131072)[self.use_scaled_rope]:
            normal["context_length"] = None
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    @property
    def head_dim(self) -> int:
        """hd, the width of one head."""
        return self.head_width or self.dim // self.n_heads

    @property
    def n_rep(self) -> int:
        """Query heads in a group: n_heads / n_kv_heads."""
        return self.n_heads // self.n_kv_heads

    @property
    def hidden_dim(self) -> int:
        """F, neurons of each feed-forward network."""
        multiplier = self.ffn_dim_multiplier
        return ffn_hidden_dim(self.dim, self.multiple_of, multiplier)

    @property
    def max_seq_len(self) -> int:
        """Positions the model is made for; 131072 in Llama 3.1 to 3.3."""
        return self.context_length or (8192, 131072)[self.use_scaled_rope]

    @classmethod
    def from_dict(cls, params: dict, where="params") -> "ModelArgs":
        """Check the keys, then the values; a ValueError begins with `where`."""
        form = 'an object like {"dim": 2048, "n_layers": 16, …}'
        expect(isinstance(params, dict), where, params, form)
        fields = dataclasses.fields(cls)
        needed = [f.name for f in fields if f.default is dataclasses.MISSING]
        for key in OTHER_KINDS.keys() & params.keys():
            no = f"no such key: a {OTHER_KINDS[key]} checkpoint does not run"
            expect(False, f"{where}: {key}", params[key], no)
        unknown = sorted(params.keys() - {f.name for f in fields})
        missing = [name for name in needed if name not in params]
        keys = ", ".join(needed) + " and use_scaled_rope"
        for kind, names in (("unknown", unknown), ("missing", missing)):
            expect(not names, f"{where}: the list of {kind} keys", names, keys)
        try:
            return cls(**params)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    @classmethod
    def from_file(cls, path) -> "ModelArgs":
        """Read a params.json; see `from_dict`."""
        params = read_json(require_file(Path(path).parent, Path(path).name))
        return cls.from_dict(params, where=path)

    def to_dict(self) -> dict:
        """Return what Meta's params.json of such a model holds, sorted."""
        kept = {n: v for n, v in dataclasses.asdict(self).items() if v}
        if self.rope_scaling_factor == published_scaling_factor(self.dim):
            del kept["rope_scaling_factor"]
        kept["ffn_dim_multiplier"] = self.ffn_dim_multiplier
        return dict(sorted(kept.items()))

    def _check(self):
        for f in dataclasses.fields(self):
            value, kind = getattr(self, f.name), type(getattr(self, f.name))
            if value is None and f.type in (int | None, float | None):
                continue
            if f.type is bool:
                expect(kind is bool, f.name, value, "true or false")
                continue
            is_real = f.name in BOUNDS
            low, high = BOUNDS.get(f.name, (1, MAX_COUNT - 1))
            ok = kind is int or is_real and kind is float
            what = "a number" if is_real else "a whole number"
            expected = f"{what} from {low:.10g} to {high:.10g}"
            expect(ok and low <= value <= high, f.name, value, expected)
        H, KV = self.n_heads, self.n_kv_heads
        expect(H % KV == 0, "n_heads", H, f"a multiple of n_kv_heads = {KV}")
        width = self.head_width or self.dim / H
        name = "head_width" if self.head_width else "dim / n_heads"
        expect(width % 2 == 0, name, width, "an even number, for RoPE's pairs")


def published_scaling_factor(dim: int) -> float:
    r"""Return RoPE's published scaling factor for a model of this width.

    params.json says only `use_scaled_rope`. The published factor is 32 for
    Llama 3.2 1B (dim 2048) and 3B (3072), and 8 for all others, from 8B (4096)
    to 405B (16384). (Meta's code says 8 for all: wrong for 1B and 3B.)
    """
    return 32.0 if dim < 4096 else 8.0


# The published params.json of Llama 3.2-1B: hd 64, F 8192, 4 heads a group
LLAMA_1B = ModelArgs(
    dim=2048,
    n_layers=16,
    n_heads=32,
    n_kv_heads=8,
    vocab_size=128256,
    multiple_of=256,
    ffn_dim_multiplier=1.5,
    norm_eps=1e-5,
    rope_theta=500000.0,
    use_scaled_rope=True,
)
