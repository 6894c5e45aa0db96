"""Solutions to the exercises of F_heads: each replaces its stub."""

import torch

from llamalib import record, rms_norm


# %% exercise 1
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            sums.append(sum(weights[t, s + 1].item() for s in earlier))
    return sum(sums) / len(sums) if sums else 0.0


# %% exercise 2
def answer_block(hidden, weight, output, eps):
    x = rms_norm(hidden[:, -1], weight, eps)  # (L+1, D)
    top = (x @ output.T).argmax(-1).tolist()  # L+1 ids
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k


# %% exercise 3
def patch_ffn(llama, base, donor, block):
    given = record(llama, donor)[f"layers.{block}.feed_forward.out"]  # (T, D)

    def put(module, args, out):
        out = out.clone()
        out[..., -1, :] = given[-1]
        return out

    hook = llama.layers[block].feed_forward.register_forward_hook(put)
    logits = llama(base)[-1]  # (V,)
    hook.remove()
    return logits
