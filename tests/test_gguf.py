"""GGUF: the same model and tokenizer; other models are refused."""

import gguf as ggml
import numpy as np
import pytest
import torch

import llamalib
from llamalib.__main__ import main
from llamalib.gguf import dequantized, open_file
from llamalib.load import describe
from tests.gguf_files import write_gguf
from tests.helpers import (
    OTHER_SETTINGS,
    random_ids,
    random_llama,
    small_config,
    small_ranks,
)

PLAIN = dict(device="cpu", dtype=torch.float32)


def llama_of(**changes):
    """A random model with a Llama 3 tokenizer of 300 ranks."""
    tied = changes.pop("tied", True)
    llama = random_llama(small_config(**changes), tied=tied)
    llama.tokenizer = llamalib.Tokenizer(small_ranks(300))
    return llama


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("more", OTHER_SETTINGS)
@torch.no_grad()
def test_the_same_model(tmp_path, KV, tied, more):
    llama = llama_of(n_kv_heads=KV, tied=tied, **more)
    file = write_gguf(tmp_path / "small.gguf", llama)
    found = llamalib.load(file, **PLAIN)
    for name in ("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size"):
        assert getattr(found.config, name) == getattr(llama.config, name)
    for name in ("head_dim", "hidden_dim", "norm_eps", "rope_theta"):
        assert getattr(found.config, name) == getattr(llama.config, name)
    assert found.config.scaling_factor == llama.config.scaling_factor
    assert found.config.context_length == llama.config.context_length
    assert found.tied is tied and found.name == "small"
    tokens = random_ids(2, 40)
    assert torch.equal(found(tokens), llama(tokens))


@torch.no_grad()
def test_rows_are_in_metas_order(tmp_path):
    """As ggml's converter moves those of Hugging Face's wq and wk."""
    from transformers import LlamaForCausalLM

    from tests.reference import write_transformers

    llama = llama_of()
    write_transformers(llama, tmp_path / "theirs")
    theirs = LlamaForCausalLM.from_pretrained(tmp_path / "theirs").eval()

    def moved(w, n):  # the halves of each head become pairs
        w = w.reshape(n, 2, len(w) // n // 2, w.shape[1])
        return np.ascontiguousarray(w.swapaxes(1, 2).reshape(-1, w.shape[-1]))

    def take_theirs(facts, tensors, kinds):
        config, state = llama.config, theirs.state_dict()
        for i in range(config.n_layers):
            for letter, n in ("q", config.n_heads), ("k", config.n_kv_heads):
                w = state[f"model.layers.{i}.self_attn.{letter}_proj.weight"]
                tensors[f"blk.{i}.attn_{letter}.weight"] = moved(w.numpy(), n)

    file = write_gguf(tmp_path / "a.gguf", llama, change=take_theirs)
    tokens = random_ids(1, 30)
    found = llamalib.load(file, **PLAIN)(tokens)
    assert (found - theirs(tokens).logits).abs().max() < 1e-5


def random_blocks(kind, rows, K):
    """Random bytes of a type whose numbers are finite."""
    block, size = ggml.GGML_QUANT_SIZES[kind]
    r = np.random.default_rng(0)
    found = r.integers(0, 256, (rows * K // block, size), dtype=np.uint8)
    for _ in range(100):
        numbers = ggml.dequantize(found, kind).reshape(len(found), -1)
        bad = ~(np.abs(numbers) < 1e4).all(1)
        if not bad.any():
            return found.reshape(rows, -1)
        found[bad] = r.integers(0, 256, (bad.sum(), size), dtype=np.uint8)
    raise AssertionError(kind)


KINDS = sorted(kind.name for kind in ggml.quants._type_traits)


@pytest.mark.parametrize("kind", ["F32", "F16", *KINDS])
def test_every_type(tmp_path, monkeypatch, kind):
    """Each type that ggml's package reads, row by row and whole."""
    kind = ggml.GGMLQuantizationType[kind]
    w = np.random.default_rng(0).normal(size=(5, 512)).astype(np.float32)
    if kind.name == "F16":
        w = w.astype(np.float16)
    if kind.name not in ("F32", "F16"):
        w = random_blocks(kind, 5, 512)
    writer = ggml.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("w", w, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = open_file(tmp_path / "a.gguf").tensors
    right = torch.from_numpy(np.array(ggml.dequantize(w, kind)))
    assert right.shape == (5, 512)
    for piece in 1, 1000, 2**20:
        monkeypatch.setattr("llamalib.gguf.PIECE", piece)
        for dtype in torch.float32, torch.bfloat16:
            found = dequantized(tensor, dtype, "w")
            assert torch.equal(found, right.to(dtype))


def test_the_dtype(tmp_path):
    """bfloat16, unless another is asked for; float16 ends at 65,504."""
    file = write_gguf(tmp_path / "a.gguf", llama_of())
    assert llamalib.load(file, device="cpu").dtype == torch.bfloat16
    assert llamalib.load(file, device="cpu", dtype=torch.float16)

    def enlarge(facts, tensors, kinds):
        tensors["blk.1.attn_q.weight"][0, 0] = 1e5

    file = write_gguf(tmp_path / "a.gguf", llama_of(), change=enlarge)
    with pytest.raises(ValueError, match="blk.1.attn_q.weight.*65,504"):
        llamalib.load(file, device="cpu", dtype=torch.float16)
    assert llamalib.load(file, device="cpu", quantize="int8")


@torch.no_grad()
def test_the_pocket(tmp_path, pocket):
    """With its tokenizer; whole, converted, and described."""
    file = write_gguf(tmp_path / "pocket.Q8_0.gguf", pocket, "Q8_0")
    found = llamalib.load(file, device="cpu")
    assert found.config == pocket.config
    assert describe(found).startswith("pocket.Q8_0: L=6, D=256")
    text = "The capital of France is"
    ids = found.tokenizer.encode(text, bos=True, eos=False)
    assert ids == pocket.tokenizer.encode(text, bos=True, eos=False)
    new = list(llamalib.generate(found, ids, max_new_tokens=5))
    assert found.tokenizer.decode(new).startswith(" Paris.")
    assert found.tokenizer.ranks == pocket.tokenizer.ranks
    assert found.tokenizer.special_tokens == pocket.tokenizer.special_tokens
    assert found.tokenizer.stop_tokens == pocket.tokenizer.stop_tokens
    assert main(["convert", str(file), str(tmp_path / "metas")]) == 0
    again = llamalib.load(tmp_path / "metas", device="cpu")
    w = found.state_dict()
    assert all(torch.equal(x, w[n]) for n, x in again.state_dict().items())


@pytest.mark.parametrize("said, ids", [(None, 1), (True, 1), (False, 0)])
def test_another_familys_begin_token(tmp_path, said, ids):
    """As llama.cpp: unless the header says no. One token is renamed."""

    def rename(facts, tensors, kinds):
        names = facts["tokenizer.ggml.tokens"]
        names[names.index("<|begin_of_text|>")] = "<|begin|>"
        if said is not None:
            facts["tokenizer.ggml.add_bos_token"] = said

    file = write_gguf(tmp_path / "a.gguf", llama_of(), change=rename)
    t = llamalib.load(file, device="cpu").tokenizer
    begin = [t.special_tokens["<|begin|>"]][:ids]
    plain = t.encode("abc", bos=False, eos=False)
    assert t.encode("abc", bos=True, eos=False) == begin + plain
    assert not hasattr(t, "ranks") and t.bos_id == (begin or [None])[0]


def test_a_folder_with_one_file(tmp_path):
    file = write_gguf(tmp_path / "a.gguf", llama_of())
    assert llamalib.find_checkpoint(tmp_path) == file
    assert llamalib.find_checkpoint(tmp_path.parent / tmp_path.name) == file
    with pytest.raises(ValueError, match="a GGUF file, Meta's is needed: run"):
        llamalib.find_checkpoint(tmp_path, metas=True)
    write_gguf(tmp_path / "b.gguf", llama_of())
    with pytest.raises(ValueError, match="several checkpoints: name .*a.gguf"):
        llamalib.load(tmp_path)


# -- other models are refused ------------------------------------------------


def no_tensor(name):
    return lambda facts, tensors, kinds: tensors.pop(name)


def new_tensor(name, shape=(8,)):
    def change(facts, tensors, kinds):
        tensors[name], kinds[name] = np.ones(shape, np.float32), "F32"

    return change


def set_number(name, value):
    def change(facts, tensors, kinds):
        tensors[name][(1,) * tensors[name].ndim] = value

    return change


ARCH = "general.architecture"


@pytest.mark.parametrize(
    "said, more, change",
    [
        ("general.architecture must be llama, got 'qwen2'", {ARCH: "qwen2"}, None),
        ("llama.expert_count must be 0, got 8", {"llama.expert_count": 8}, None),
        ("rope.scaling.type must be none", {"llama.rope.scaling.type": "yarn"}, None),
        ("unknown setting llama.logit_scale", {"llama.logit_scale": 2.0}, None),
        ("head_count_kv = 3, got 8", {"llama.attention.head_count_kv": 3}, None),
        ("block_count must be a whole", {"llama.block_count": "two"}, None),
        ("block_count must be a whole", {"llama.block_count": None}, None),
        ("has the shape", {"llama.rope.dimension_count": 4}, None),
        ("value_length must be 8", {"llama.attention.value_length": 4}, None),
        ("has the shape", {"llama.vocab_size": 557}, None),
        ("has no tensor layers.1.feed_forward.w2", {}, no_tensor("blk.1.ffn_down.weight")),
        ("blk.0.attn_q.bias is not a tensor of a Llama", {}, new_tensor("blk.0.attn_q.bias")),
        ("rope_freqs.weight must hold the factors", {}, new_tensor("rope_freqs.weight", (4,))),
        ("NaN or infinite", {}, set_number("blk.1.ffn_up.weight", np.nan)),
        ("NaN or infinite", {}, set_number("output_norm.weight", np.inf)),
        ("does not know its tokenizer .gpt2, qwen2", {"tokenizer.ggml.pre": "qwen2"}, None),
        ("does not know its tokenizer .llama, ", {"tokenizer.ggml.model": "llama"}, None),
        ("damaged.*merges", {"tokenizer.ggml.merges": None}, None),
        ("damaged.*eos_token_id is 999", {"tokenizer.ggml.eos_token_id": 999}, None),
        ("damaged.*556 tokens, 556 unique, with 2 types", {"tokenizer.ggml.token_type": [1, 1]}, None),
    ],
)  # fmt: skip
def test_other_models_are_refused(tmp_path, said, more, change):
    file = write_gguf(tmp_path / "a.gguf", llama_of(), "F32", change, more)
    with pytest.raises(ValueError, match=said) as error:
        llamalib.load(file, device="cpu")
    assert str(error.value).count("\n") == 0 and len(str(error.value)) < 400


def test_a_type_that_ggml_does_not_read(tmp_path):
    def store_ints(facts, tensors, kinds):
        kinds["blk.0.ffn_up.weight"] = "I32"
        tensors["blk.0.ffn_up.weight"] = (
            tensors["blk.0.ffn_up.weight"].astype(np.int32).view(np.uint8)
        )

    file = write_gguf(tmp_path / "a.gguf", llama_of(), change=store_ints)
    with pytest.raises(ValueError, match="of type I32, .*another quantizat"):
        llamalib.load(file, device="cpu")
