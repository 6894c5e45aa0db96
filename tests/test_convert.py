"""A GGUF file in Hugging Face's format: the same numbers, the same ids.

Meta's format of a GGUF file is in tests/test_gguf.py.
"""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from tokenizers import pre_tokenizers

import llamalib
from llamalib.__main__ import main
from llamalib.gguf import tokenizer_files
from llamalib.save import save_hugging_face
from llamalib.tokenizer import SPECIAL_TOKENS
from tests.gguf_files import library_facts, tokenizer_facts, write_gguf
from tests.helpers import (
    dead_process,
    random_ids,
    random_llama,
    small_config,
    small_ranks,
)
from tests.test_huggingface import gpt2_kind, mixed_lines

PLAIN = dict(device="cpu")
SAFE, CONFIG = "model.safetensors", "config.json"
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SCALED = dict(use_scaled_rope=True, rope_scaling_factor=8.0)
TEMPLATE = "{{ bos_token }}{{ messages[0]['content'] }}"
WIDE = dict(head_width=12, rope_theta=1e4, norm_eps=1e-6, context_length=99)


def smollm():
    """SmolLM2's kind of tokenizer, by GGUF's names."""
    facts = library_facts(gpt2_kind(special=CHATML), "smollm")
    facts["tokenizer.ggml.tokens"][-1] = "12"  # digits are split before
    facts["tokenizer.ggml.merges"][-1] = "1 2"
    return facts


def gpt2():
    library = gpt2_kind(special=CHATML)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library_facts(library, "gpt-2")


def llama_3():
    """A tokenizer with a name that Meta's format has no place for."""
    names = [*SPECIAL_TOKENS[:20], "<|im_start|>", *SPECIAL_TOKENS[21:]]
    special = {name: 644 + i for i, name in enumerate(names)}
    return tokenizer_facts(llamalib.Tokenizer(small_ranks(644), special))


def small_file(
    folder, tokenizer=smollm, tied=True, kind="F32", change=None, **changes
):
    """Write a GGUF file of a small model; kind, change: see `write_gguf`."""
    llama = random_llama(small_config(vocab_size=900, **changes), tied=tied)
    llama.tokenizer = llamalib.Tokenizer(small_ranks(644))
    facts = tokenizer() | {"tokenizer.chat_template": TEMPLATE}
    file = folder / "small.gguf"
    return write_gguf(file, llama, kind, change, more=facts)


@pytest.mark.parametrize(
    "tokenizer, tied, changes",
    [
        (smollm, True, {}),
        (smollm, False, SCALED),
        (gpt2, True, WIDE),
        (llama_3, False, dict(n_kv_heads=8) | SCALED),
    ],
)
@torch.no_grad()
def test_the_same_model(tmp_path, capsys, tokenizer, tied, changes):
    """For the transformers library, and for `load`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = small_file(tmp_path, tokenizer, tied, **changes)
    new = tmp_path / "new"
    assert main(["convert", str(file), str(new)]) == 0
    said = f"ready: {new}, in Hugging Face's format\n"
    said += f"to open it, set LLAMA_DIR to {new}\n"
    assert capsys.readouterr().out == said
    ours, again = llamalib.load(file, **PLAIN), llamalib.load(new, **PLAIN)
    assert again.config == ours.config and again.tied is ours.tied is tied
    for name, weight in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    theirs = AutoModelForCausalLM.from_pretrained(new)
    assert theirs.dtype == ours.dtype == torch.bfloat16
    tokens = random_ids(2, 40)
    difference = ours.float()(tokens) - theirs.float()(tokens).logits
    assert difference.abs().max() < 1e-5
    # ids
    first, second = ours.tokenizer, again.tokenizer
    third = AutoTokenizer.from_pretrained(new)
    ends = theirs.generation_config.eos_token_id
    assert first.stop_tokens == second.stop_tokens == set(ends)
    assert first.eos_id == second.eos_id == third.eos_token_id == ends[0]
    for line in ["", *mixed_lines(100)]:
        ids = first.encode(line, bos=True, eos=False)
        assert second.encode(line, bos=True, eos=False) == ids, line
        assert third(line, split_special_tokens=True).input_ids == ids
    for name, i in first.special_tokens.items():
        assert third(name, add_special_tokens=False).input_ids == [i]
    chat = [{"role": "user", "content": "Hi"}]
    text = third.apply_chat_template(chat, tokenize=False)
    assert text == f"{third.bos_token}Hi" and third.bos_token_id is not None


def test_llama_3s_tokenizer_gets_metas_format(tmp_path, capsys):
    """tests/test_gguf.py compares the weights."""
    llama = random_llama(small_config(vocab_size=900))
    llama.tokenizer = llamalib.Tokenizer(small_ranks(644))
    file, new = write_gguf(tmp_path / "a.gguf", llama), tmp_path / "new"
    assert main(["convert", str(file), str(new)]) == 0
    said = (
        f"ready: {new}, in Meta's format\nto open it, set LLAMA_DIR to {new}\n"
    )
    assert capsys.readouterr().out == said
    assert (new / "params.json").is_file() and not (new / CONFIG).exists()


def test_a_folder_with_files_is_refused(tmp_path, capsys):
    file = small_file(tmp_path)
    assert main(["convert", str(file), str(tmp_path)]) == 1
    assert "is not empty: name a new folder" in capsys.readouterr().err
    llama = llamalib.load(file, **PLAIN)
    files = tokenizer_files(file, llama.tokenizer)
    with pytest.raises(ValueError, match="is not empty"):
        save_hugging_face(llama, tmp_path, files)
    assert [*tmp_path.iterdir()] == [file]
    llama = llamalib.load(file, quantize="int8", **PLAIN)
    with pytest.raises(ValueError, match="only a whole model of floats"):
        save_hugging_face(llama, tmp_path / "new", files)
    with pytest.raises(ValueError, match="folder must be a path, got 3"):
        save_hugging_face(llama, 3, files)


def test_a_full_disk(tmp_path, monkeypatch, capsys):
    """Nothing stays behind, and one sentence says so."""

    def full(tensors, part, metadata):
        part.write_bytes(b"half of it")
        raise safetensors.SafetensorError("No space left on device")

    file, new = small_file(tmp_path), tmp_path / "new"
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    assert main(["convert", str(file), str(new)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert f"{new / SAFE} cannot be written (No space left on device)" in err
    assert [*new.iterdir()] == []


def test_a_conversion_that_is_killed(tmp_path, monkeypatch):
    """config.json comes last, so that half a model never opens."""
    file, new, replace = small_file(tmp_path), tmp_path / "new", Path.replace

    def killed(self, target):
        if target.name == CONFIG:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    assert main(["convert", str(file), str(new)]) == 130
    monkeypatch.undo()
    assert len([*new.iterdir()]) == 4
    with pytest.raises(FileNotFoundError, match="has neither Meta's"):
        llamalib.load(new)


def test_what_a_killed_conversion_left_is_removed(tmp_path):
    file, new = small_file(tmp_path), tmp_path / "new"
    new.mkdir()
    for name in (SAFE, CONFIG, "tokenizer_config.json"):
        (new / f"{name}.part{dead_process()}").write_bytes(b"half of it")
    assert main(["convert", str(file), str(new)]) == 0
    assert len([*new.iterdir()]) == 5
