"""A real English model that needs no account: SmolLM2-135M (Apache-2.0).

Its published config with random weights, and a tokenizer of its kind.
"""

import json

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer

import llamalib
from llamalib.load import describe
from llamalib.tokenizer import HuggingFaceTokenizer

# https://huggingface.co/HuggingFaceTB/SmolLM2-135M, its config.json
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 49152,
}
TEXTS = [
    "Gravity is the force by which a planet draws objects to its centre.",
    "def add(a, b):\n    return a + b  # 12345, 67.8\n\n",
    "  Two spaces, a tab\tand “quotes” — naïve café, Straße.",
    "<|endoftext|> in a text is text",
]


def small_tokenizer():
    """Return a byte-level BPE that splits digits, as the published one."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    library.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(TEXTS, trainer)
    return library


def write_folder(folder, dtype=torch.float32, **changes):
    """Write what the page holds; return the transformers library's model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = CONFIG | changes
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(**settings)).to(dtype).eval()
    theirs.save_pretrained(folder)
    # the published file, which an older version of the library has written
    (folder / "config.json").write_text(json.dumps(settings))
    small_tokenizer().save(str(folder / "tokenizer.json"))
    return theirs


@pytest.fixture(scope="module")
def few_layers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("SmolLM2-135M")
    return folder, write_folder(folder, num_hidden_layers=2, vocab_size=500)


@torch.no_grad()
def test_the_same_logits_and_ids(few_layers):
    folder, theirs = few_layers
    llama = llamalib.load(folder, device="cpu", check=True)
    assert llama.tied and llama.config.head_dim == 64
    assert llama.config.hidden_dim == 1536 and not llama.config.scaling_factor
    tokens = torch.randint(0, 500, (2, 300))
    difference = (llama(tokens) - theirs(tokens).logits).abs().max()
    assert difference < 1e-5, difference
    prompt = torch.randint(0, 400, (1, 7))
    expected = theirs.generate(
        prompt, max_new_tokens=30, do_sample=False, eos_token_id=None
    )
    ours = llamalib.generate(llama, prompt[0], max_new_tokens=30, stop=())
    assert list(ours) == expected[0, 7:].tolist()


def test_the_same_tokens(few_layers):
    folder, _ = few_layers
    ours = llamalib.load(folder, device="cpu").tokenizer
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert type(ours) is HuggingFaceTokenizer
    assert ours.bos_id == ours.eos_id == 0 and ours.stop_tokens == {0}
    library.encode_special_tokens = True
    for text in TEXTS:
        ids = ours.encode(text, bos=True, eos=False)
        # the library puts nothing before a text, so neither does `encode`
        assert ids == library.encode(text).ids and 0 not in ids
        assert ours.encode(text, bos=True, eos=True) == [*ids, 0]
        assert ours.decode(ids) == library.decode(ids) == text
        pieces = list(ours.decode_stream(ids))
        assert "".join(pieces) == text and len(pieces) == len(ids)
    special = ours.encode(
        TEXTS[3], bos=False, eos=False, allowed_special="all"
    )
    assert special[0] == 0


def test_a_stream_of_any_ids(few_layers):
    """A random model's bytes need not be UTF-8."""
    folder, _ = few_layers
    ours = llamalib.load(folder, device="cpu").tokenizer
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for seed in range(50):
        torch.manual_seed(seed)
        ids = torch.randint(3, library.get_vocab_size(), (40,)).tolist()
        assert ours.decode(ids) == library.decode(ids)
        assert "".join(ours.decode_stream(ids)) == library.decode(ids)


@torch.no_grad()
def test_full_shapes(tmp_path):
    """134,515,008 parameters in bfloat16, mapped and in 30 layers."""
    from transformers import LlamaForCausalLM

    folder = tmp_path / "SmolLM2-135M"
    write_folder(folder, dtype=torch.bfloat16)
    llama = llamalib.load(folder, device="cpu")
    assert sum(p.numel() for p in llama.parameters()) == 134_515_008
    said = "SmolLM2-135M: L=30, D=576, H=9, KV=3, F=1536, V=49152, torch.bfl"
    assert describe(llama).startswith(said)
    tokens = torch.randint(0, 49152, (1, 12))
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    difference = (llama.float()(tokens) - theirs(tokens).logits).abs().max()
    assert difference < 1e-5, difference
