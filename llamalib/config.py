r"""Meta's `params.json`, field by field."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from .feed_forward import ffn_hidden_dim
from .files import existing, read_json

# Meta's vision and quantized checkpoints hold these too. They are read, so
# that any of Meta's configs can be looked at; `llamalib.load` refuses them.
VISION_KEYS = (
    "vision_chunk_size",
    "vision_max_num_chunks",
    "vision_num_cross_attention_layers",
)
MOST = 2**31  # of anything that is counted
LARGEST = 1e30  # of any other number
QUANTIZATION_KEYS = ("quantization_args", "lora_args")


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    r"""The shape of a Llama, in Meta's names.

    Fields:
        dim: D, the width of the residual stream.
        n_layers: L, the number of blocks.
        n_heads: H, query heads a layer.
        n_kv_heads: KV, key/value heads a layer; divides n_heads.
        vocab_size: V, rows of the embedding.
        multiple_of, ffn_dim_multiplier: give `hidden_dim`.
        norm_eps: added under RMSNorm's root.
        rope_theta: the base of RoPE's frequencies.
        use_scaled_rope: whether the low frequencies are slowed.
        rope_scaling_factor: by how much. Meta's params.json does not say;
            where it does not, see `published_scaling_factor`. None
            where use_scaled_rope is false.
        head_width: hd, where it is not dim / n_heads; else None.
        context_length: the positions that the model is made for, where it
            is not what Meta's models are made for; else None.

    Raises:
        ValueError: naming the field, what was found and what is wanted.
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
    vision_chunk_size: int | None = None
    vision_max_num_chunks: int | None = None
    vision_num_cross_attention_layers: int | None = None
    quantization_args: dict | None = None
    lora_args: dict | None = None
    head_width: int | None = field(default=None, repr=False)
    context_length: int | None = field(default=None, repr=False)

    def __post_init__(self):
        self._check_numbers()
        self._check_heads()
        # one way to say the same: configs of the same model are equal
        if self.head_width == self.dim / self.n_heads:
            object.__setattr__(self, "head_width", None)
        if self.context_length == self._metas_context:
            object.__setattr__(self, "context_length", None)
        factor = self.rope_scaling_factor
        if not self.use_scaled_rope:
            factor = None
        elif factor is None:
            factor = published_scaling_factor(self.dim)
        object.__setattr__(self, "rope_scaling_factor", factor)

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
            params: what params.json holds.
            where: named in errors, a file's path for one.

        Raises:
            ValueError: naming every unknown and every missing key.
        """
        if not isinstance(params, dict):
            raise ValueError(
                f"{where} holds a {type(params).__name__}; wanted an object "
                'like {"dim": 2048, "n_layers": 16, …}'
            )
        fields = dataclasses.fields(cls)
        known = [f.name for f in fields]
        needed = [f.name for f in fields if f.default is dataclasses.MISSING]
        unknown = sorted(set(params) - set(known))
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
        params = read_json(existing(Path(path).parent, Path(path).name))
        return cls.from_dict(params, where=path)

    def to_dict(self) -> dict:
        """Only what Meta's params.json of such a model holds, sorted."""
        kept = {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if value is not None and name != "rope_scaling_factor"
        }
        if not self.use_scaled_rope:
            kept.pop("use_scaled_rope")
        elif self.rope_scaling_factor != published_scaling_factor(self.dim):
            kept["rope_scaling_factor"] = self.rope_scaling_factor
        kept["ffn_dim_multiplier"] = self.ffn_dim_multiplier
        return dict(sorted(kept.items()))

    def _check_numbers(self):
        counts = "dim n_layers n_heads n_kv_heads vocab_size multiple_of"
        others = ("head_width", "context_length")
        for name in (*counts.split(), *others):
            value = getattr(self, name)
            if value is None and name in others:
                continue
            # bool is an int in Python, and true is no number of layers
            if type(value) is not int or not 1 <= value < MOST:
                raise ValueError(
                    f"{name} is {repr(value)[:40]}; wanted a whole number "
                    f"from 1 to {MOST - 1}"
                )
        optional = ("ffn_dim_multiplier", "rope_scaling_factor")
        for name in ("norm_eps", "rope_theta", *optional):
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            number = type(value) in (int, float)
            if not number or not 0 < value < LARGEST:
                raise ValueError(
                    f"{name} is {repr(value)[:40]}; wanted a number over "
                    "0, and a finite one"
                )
        if type(self.use_scaled_rope) is not bool:
            raise ValueError(
                f"use_scaled_rope is {self.use_scaled_rope!r}; "
                "wanted true or false"
            )

    def _check_heads(self):
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads is {self.n_heads} and n_kv_heads "
                f"{self.n_kv_heads}; wanted a multiple of n_kv_heads, so that "
                "every group has as many query heads"
            )
        if self.head_width is not None:
            if self.head_width % 2:
                raise ValueError(
                    f"head_width is {self.head_width}; wanted an even "
                    "number, for RoPE's pairs"
                )
        elif self.dim % (2 * self.n_heads):
            raise ValueError(
                f"dim is {self.dim} and n_heads {self.n_heads}; wanted a dim "
                "that divides into heads of even width, for RoPE's pairs"
            )


def published_scaling_factor(dim: int) -> float:
    r"""RoPE's scaling factor, by the width of the model.

    params.json says only `use_scaled_rope`. The published configurations say
    32 for Llama 3.2's text models, 1B (dim 2048) and 3B (3072), and 8 for all
    others: 3.1 and 3.3's 8B (4096), 70B (8192), 405B (16384) and the 3.2
    vision models, which are built on 3.1's. So models narrower than 4096
    have 32. (Meta's published code says 8 for all: wrong for 1B and 3B.)
    """
    return 32.0 if dim < 4096 else 8.0
