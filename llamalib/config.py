r"""Meta's `params.json`, field by field."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from .files import read_json, require_file
from .swiglu import ffn_hidden_dim

# Keys of Meta's other checkpoints, which llamalib does not run.
OTHER_KINDS = {
    "vision_chunk_size": "vision",
    "vision_max_num_chunks": "vision",
    "vision_num_cross_attention_layers": "vision",
    "quantization_args": "quantized",
    "lora_args": "quantized",
}
MAX_COUNT = 2**31
MAX_VALUE = 1e30


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    r"""The shape of a Llama, in Meta's names.

    Fields:
        dim: D, the width of the residual stream.
        n_layers: L, the number of blocks.
        n_heads: H, query heads per layer.
        n_kv_heads: KV, key/value heads per layer; divides n_heads.
        vocab_size: V, rows of the embedding.
        multiple_of, ffn_dim_multiplier: give `hidden_dim`.
        norm_eps: added under RMSNorm's root.
        rope_theta: the base of RoPE's frequencies.
        use_scaled_rope: whether the low frequencies are divided.
        rope_scaling_factor: by how much. Meta's params.json does not say;
            None: `published_scaling_factor`.
        head_width: hd, if it is not dim / n_heads; else None.
        context_length: positions the model is made for, if not as many as
            Meta's models; else None.

    Raises:
        ValueError: naming the field, the value found and the one expected.
    """

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    multiple_of: int
    ffn_dim_multiplier: float | None
    norm_eps: float
    rope_theta: float
    use_scaled_rope: bool = False
    rope_scaling_factor: float | None = None
    head_width: int | None = field(default=None, repr=False)
    context_length: int | None = field(default=None, repr=False)

    def __post_init__(self):
        self._check_numbers()
        self._check_heads()
        # configs of the same model are equal, however they are written
        factor = self.rope_scaling_factor
        if not self.use_scaled_rope:
            factor = None
        elif factor is None:
            factor = published_scaling_factor(self.dim)
        normal = {"rope_scaling_factor": factor}
        if self.head_width == self.dim / self.n_heads:
            normal["head_width"] = None
        if self.context_length == self._metas_context:
            normal["context_length"] = None
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    @property
    def head_dim(self) -> int:
        """hd, the width of one head: dim / n_heads, or head_width."""
        return self.head_width or self.dim // self.n_heads

    @property
    def n_rep(self) -> int:
        """Query heads in a group: n_heads / n_kv_heads."""
        return self.n_heads // self.n_kv_heads

    @property
    def hidden_dim(self) -> int:
        """F, neurons of each feed-forward network."""
        return ffn_hidden_dim(
            self.dim, self.multiple_of, self.ffn_dim_multiplier
        )

    @property
    def max_seq_len(self) -> int:
        """Positions the model is made for.

        Meta's: 131072 with scaled RoPE (3.1, 3.2, 3.3), 8192 without (3).
        """
        return self.context_length or self._metas_context

    @property
    def _metas_context(self) -> int:
        return 131072 if self.use_scaled_rope else 8192

    @classmethod
    def from_dict(cls, params: dict, where="params") -> "ModelArgs":
        """Check the keys, then the values.

        Args:
            params: the contents of params.json.
            where: named in errors, such as a file's path.

        Raises:
            ValueError: naming every unknown and every missing key.
        """
        if not isinstance(params, dict):
            raise ValueError(
                f"{where} holds a {type(params).__name__}; expected an object "
                'like {"dim": 2048, "n_layers": 16, …}'
            )
        for key in OTHER_KINDS.keys() & params.keys():
            raise ValueError(
                f"{where} has {key}: a {OTHER_KINDS[key]} checkpoint, which "
                "llamalib does not run; take the text model's, in bfloat16"
            )
        fields = dataclasses.fields(cls)
        needed = [f.name for f in fields if f.default is dataclasses.MISSING]
        unknown = sorted(params.keys() - {f.name for f in fields})
        missing = [name for name in needed if name not in params]
        problems = []
        if unknown:
            problems.append(f"unknown keys: {', '.join(unknown)}")
        if missing:
            problems.append(f"missing keys: {', '.join(missing)}")
        if problems:
            raise ValueError(
                f"{where} has {'; '.join(problems)}. The keys of a Llama 3 "
                f"params.json are {', '.join(needed)} and use_scaled_rope; "
                "take the file that came with the weights"
            )
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
        published = published_scaling_factor(self.dim)
        if self.rope_scaling_factor == published:
            del kept["rope_scaling_factor"]
        kept["ffn_dim_multiplier"] = self.ffn_dim_multiplier
        return dict(sorted(kept.items()))

    def _check_numbers(self):
        optional = "head_width context_length rope_scaling_factor".split()
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is None and f.name in (*optional, "ffn_dim_multiplier"):
                continue
            # bool is an int in Python, and True is not a valid layer count
            kind, expected = type(value), None
            if f.type is bool:
                if kind is not bool:
                    expected = "true or false"
            elif f.type in (int, int | None):
                if kind is not int or not 1 <= value < MAX_COUNT:
                    expected = f"a whole number from 1 to {MAX_COUNT - 1}"
            elif kind not in (int, float) or not 0 < value < MAX_VALUE:
                expected = "a finite number over 0"
            if expected:
                raise ValueError(
                    f"{f.name} is {repr(value)[:40]}; expected {expected}"
                )

    def _check_heads(self):
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads is {self.n_heads} and n_kv_heads {self.n_kv_heads}; "
                "expected a multiple of n_kv_heads, so that all groups have "
                "the same number of query heads"
            )
        if self.head_width is None and self.dim % (2 * self.n_heads):
            raise ValueError(
                f"dim is {self.dim} and n_heads {self.n_heads}; expected a "
                "dim that divides into heads of even width, for RoPE's pairs"
            )
        if self.head_width is not None and self.head_width % 2:
            raise ValueError(
                f"head_width is {self.head_width}; expected an even number, "
                "for RoPE's pairs"
            )


def published_scaling_factor(dim: int) -> float:
    r"""Return RoPE's published scaling factor for a model of this width.

    params.json says only `use_scaled_rope`. The published configurations say
    32 for Llama 3.2's text models, 1B (dim 2048) and 3B (3072), and 8 for all
    others: 3.1 and 3.3's 8B (4096), 70B (8192), 405B (16384) and the 3.2
    vision models, which are built on 3.1's. So models narrower than 4096
    have 32. (Meta's published code says 8 for all: wrong for 1B and 3B.)
    """
    return 32.0 if dim < 4096 else 8.0


# The published params.json of Llama 3.2-1B.
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
