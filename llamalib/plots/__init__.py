# ruff: noqa: E402, I001
r"""Pictures: the only folder that imports matplotlib.

Every function draws one figure from arrays or lists that were prepared
before, and returns its matplotlib Figure. One file holds the pictures of one
notebook; all are called as `plots.name`.
"""

import logging

# "Matplotlib is building the font cache" is no part of a lesson
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

from .base import (
    WIDTH,
    DPI,
    COLOURS,
    GROUPS,
    AMOUNT,
    SIGNED,
    visible,
    drawable,
    legible,
    plain,
    png,
    array,
    canvas,
    title,
    heatmap,
)
from .model_map import BOXES, PARTS, strip
from .initialization import (
    shares,
    parameters_by_layer,
    bits,
    histograms,
    tensor_card,
)
from .tokenize import token_rows, token_boxes, token_counts
from .embed import (
    lookup,
    norm_histogram,
    neighbours,
    nearest,
    word_map,
    order_by_layer,
    position_table,
)
from .rmsnorm import (
    rms_by_norm,
    before_and_after,
    epsilon_curves,
    error_histogram,
    gamma_by_norm,
    norm_bars,
)
from .rope import (
    turning,
    kept_angle,
    clocks,
    bands,
    wavelengths,
    score_by_distance,
    by_position,
    turned,
)
from .attention import (
    group_colour,
    masks,
    heatmap_ticks,
    attention_map,
    attention_maps_of,
    layer_heads,
    sharing,
    weights_by_scale,
    cache_bytes,
    size_text,
)
from .feed_forward import (
    activations,
    gate_openness,
    stream_norms,
    additions,
    loss_left_out,
    neuron_on_text,
)
from .lm_head import next_token_bars, lens_map, answer_by_layer, logit_by_block
from .sampling import (
    unit_interval,
    frequencies,
    entropy_by_temperature,
    reshaped,
    sample_tree,
)
from .generate import (
    cost_by_position,
    bytes_by_length,
    roofline,
    speed_by_batch,
)
from .experts import (
    expert_colour,
    router_weights,
    error_by_chosen,
    active_parameters,
    loads_over_training,
    taken,
    routed_tokens,
    dropped_by_capacity,
    routing,
)

__all__ = [
    "AMOUNT",
    "BOXES",
    "COLOURS",
    "DPI",
    "GROUPS",
    "PARTS",
    "SIGNED",
    "WIDTH",
    "activations",
    "active_parameters",
    "additions",
    "answer_by_layer",
    "array",
    "attention_map",
    "attention_maps_of",
    "bands",
    "before_and_after",
    "bits",
    "by_position",
    "bytes_by_length",
    "cache_bytes",
    "canvas",
    "clocks",
    "cost_by_position",
    "drawable",
    "dropped_by_capacity",
    "entropy_by_temperature",
    "epsilon_curves",
    "error_by_chosen",
    "error_histogram",
    "expert_colour",
    "frequencies",
    "gamma_by_norm",
    "gate_openness",
    "group_colour",
    "heatmap",
    "heatmap_ticks",
    "histograms",
    "kept_angle",
    "layer_heads",
    "legible",
    "lens_map",
    "loads_over_training",
    "logit_by_block",
    "lookup",
    "loss_left_out",
    "masks",
    "nearest",
    "neighbours",
    "neuron_on_text",
    "next_token_bars",
    "norm_bars",
    "norm_histogram",
    "order_by_layer",
    "parameters_by_layer",
    "plain",
    "png",
    "position_table",
    "reshaped",
    "rms_by_norm",
    "roofline",
    "routed_tokens",
    "router_weights",
    "routing",
    "sample_tree",
    "score_by_distance",
    "shares",
    "sharing",
    "size_text",
    "speed_by_batch",
    "stream_norms",
    "strip",
    "taken",
    "tensor_card",
    "title",
    "token_boxes",
    "token_counts",
    "token_rows",
    "turned",
    "turning",
    "unit_interval",
    "visible",
    "wavelengths",
    "weights_by_scale",
    "word_map",
]
