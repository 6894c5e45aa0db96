"""Hugging Face's format: the same model; other models are refused."""

import dataclasses
import json
import os
import random
import re
import subprocess
import sys

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import (
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.trainers import BpeTrainer

import llamalib
from llamalib import Tokenizer
from llamalib.__main__ import main
from llamalib.files import ROOT
from llamalib.formats.huggingface import FIELDS, ffn_fields
from llamalib.formats.meta import CONTROL
from llamalib.formats.tokenizer_json import (
    LibraryTokenizer,
    read_tokenizer_json,
)
from llamalib.tokenizer import SPECIAL_TOKENS
from tests.helpers import (
    random_ids,
    random_llama,
    small_config,
    write_checkpoint,
    write_tokenizer,
)
from tests.reference import write_transformers
from tests.test_checkpoint import facts_of, text_of

PLAIN = dict(device="cpu")


def tokenizer_json(model_file, path, special=SPECIAL_TOKENS):
    """Hugging Face's own conversion of a tokenizer.model."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    os.environ["TIKTOKEN_CACHE_DIR"] = ""  # it caches by the file's name
    converter = TikTokenConverter(
        str(model_file), extra_special_tokens=list(special)
    )
    converter.converted().save(str(path))
    return path


def write_folder(folder, llama=None):
    """What save_pretrained of the transformers library writes."""
    llama = llama or random_llama()
    write_transformers(llama, folder)
    write_tokenizer(folder / "spare.model")
    tokenizer_json(folder / "spare.model", folder / "tokenizer.json")
    (folder / "spare.model").unlink()
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model")


def change_json(file, **changes):
    found = json.loads(file.read_text()) | changes
    for key in [k for k, v in found.items() if v is ...]:
        del found[key]
    file.write_text(json.dumps(found))


def change_tensors(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


# -- the same model ----------------------------------------------------------


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {},
        dict(use_scaled_rope=True, rope_scaling_factor=8.0),
        dict(use_scaled_rope=True, rope_scaling_factor=32.0),
        dict(head_width=12, rope_theta=1e4, norm_eps=1e-6),
        dict(multiple_of=7, ffn_dim_multiplier=None, context_length=99),
    ],
)
@torch.no_grad()
def test_is_the_transformers_librarys_model(tmp_path, KV, tied, more):
    from transformers import LlamaForCausalLM

    config = small_config(n_kv_heads=KV, **more)
    write_folder(tmp_path, random_llama(config, tied=tied))
    llama = llamalib.load(tmp_path, **PLAIN)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert llama.tied is tied and llama.config.head_dim == config.head_dim
    assert llama.config.hidden_dim == config.hidden_dim
    tokens = random_ids(2, 40)
    logits = llama(tokens)
    assert (logits - theirs(tokens).logits).abs().max() < 1e-5
    prompt = random_ids(1, 6, seed=1)
    expected = theirs.generate(
        prompt, max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    ours = llamalib.generate(llama, prompt[0], max_new_tokens=20, stop=())
    assert list(ours) == expected[0, 6:].tolist()


def test_is_metas_model(tmp_path):
    """Both formats of the same weights: one config, the same bits."""
    config = small_config(
        use_scaled_rope=True,
        rope_scaling_factor=32.0,
        multiple_of=256,
        dim=2048,
        n_layers=1,
        n_heads=32,
        n_kv_heads=8,
    )
    expected = random_llama(config)
    metas = llamalib.load(write_checkpoint(tmp_path / "m", expected), **PLAIN)
    write_folder(tmp_path / "h", metas)
    found = llamalib.load(tmp_path / "h", **PLAIN)
    assert found.config == metas.config and found.dtype == torch.bfloat16
    for name, weight in metas.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight), name
    text = "aaab <|eot_id|> …"
    how = dict(bos=True, eos=True, allowed_special="all")
    assert found.tokenizer.encode(text, **how) == metas.tokenizer.encode(
        text, **how
    )


def test_converted_to_metas_format(folder, tmp_path, capsys):
    """For the notebooks, which read Meta's files."""
    with pytest.raises(ValueError, match="convert .*model data/model-orig"):
        llamalib.find_checkpoint(folder, metas=True)
    assert main(["convert", str(folder), str(tmp_path / "metas")]) == 0
    place = llamalib.find_checkpoint(tmp_path / "metas", metas=True)
    found = llamalib.load(place, check=True, **PLAIN)
    expected = llamalib.load(folder, **PLAIN)
    assert found.config == expected.config and found.tied == expected.tied
    for name, weight in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight), name
    assert found.tokenizer.ranks == expected.tokenizer.ranks
    # nothing is written over
    capsys.readouterr()
    assert main(["convert", str(folder), str(tmp_path / "metas")]) == 1
    assert "is not empty" in capsys.readouterr().err
    # Meta's format has no place for another tokenizer
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["merges"].pop()
    path.write_text(json.dumps(data))
    assert main(["convert", str(folder), str(tmp_path / "other")]) == 1
    assert "the tokenizer is 'LibraryTokenizer'" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def with_tokenizer(folder, special=SPECIAL_TOKENS, **generation):
    """Give a folder these control tokens, and what ends its texts."""
    write_tokenizer(folder / "spare.model")
    tokenizer_json(folder / "spare.model", folder / "tokenizer.json", special)
    (folder / "spare.model").unlink()
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


EXCHANGED = list(SPECIAL_TOKENS)  # <|eot_id|> at another id
EXCHANGED[9], EXCHANGED[20] = EXCHANGED[20], EXCHANGED[9]
# Llama 3's: before 3.1 three of the names were reserved ones
LLAMA_3 = [f"<|reserved_special_token_{i}|>" for i in range(251)]
LLAMA_3[:0] = SPECIAL_TOKENS[:2]
LLAMA_3[6:6] = SPECIAL_TOKENS[6:8]
LLAMA_3[9:9] = [SPECIAL_TOKENS[9]]
OWN = [*SPECIAL_TOKENS[:20], "<|im_start|>", *SPECIAL_TOKENS[21:]]


@pytest.mark.parametrize(
    "special, ends, is_kept_apart",
    [
        # the published base and Instruct models, in Hugging Face's format
        (SPECIAL_TOKENS, 301, True),
        (SPECIAL_TOKENS, [301, 308, 309], False),
        (SPECIAL_TOKENS, [309, 301, 308], True),  # another eos_id
        (SPECIAL_TOKENS, [13, 303], True),
        (EXCHANGED, [301, 309], True),
        (LLAMA_3, [301, 309], True),
        (OWN, [301, 308, 309], True),
    ],
)
def test_a_converted_model_is_the_same(
    folder, tmp_path, special, ends, is_kept_apart
):
    """The same ids for a text and a dialogue, and the same end of a text."""
    assert len(special) == 256
    with_tokenizer(folder, special, eos_token_id=ends)
    assert main(["convert", str(folder), str(tmp_path / "metas")]) == 0
    before = llamalib.load(folder, **PLAIN)
    after = llamalib.load(tmp_path / "metas", check=True, **PLAIN)
    assert facts_of(after.tokenizer) == facts_of(before.tokenizer)
    ends = ends if isinstance(ends, list) else [ends]
    assert after.tokenizer.stop_tokens == set(ends)
    assert (tmp_path / "metas" / CONTROL).is_file() == is_kept_apart
    assert text_of(after) == text_of(before)


def test_a_conversion_takes_no_second_copy(tmp_path):
    """The file's pages are read once and written once."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("needs Linux, which shows a process's peak memory")
    config = small_config(dim=512, n_layers=8, multiple_of=2048)
    llama = random_llama(config).to(torch.bfloat16)
    folder = write_folder(tmp_path / "model", llama)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 50_000_000
    code = """if True:
        import re, sys, llamalib
        from llamalib.__main__ import main
        def peak():
            text = open("/proc/self/status").read()
            return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", text)[1])
        llamalib.load(sys.argv[1])  # so that all is imported
        before = peak()
        main(["convert", *sys.argv[2:]])
        print(peak() - before)"""
    pocket = str(ROOT / "data" / "pocket-llama")
    target = tmp_path / "metas"
    command = [sys.executable, "-c", code, pocket, str(folder), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done
    needed = int(done.stdout.split()[-1])
    assert needed < 1.3 * size, (needed, size)
    written = (target / "consolidated.00.pth").stat().st_size
    assert abs(written - size) < 0.001 * size


@pytest.mark.parametrize(
    "hidden, fields",
    [
        ((2048, 8192), (256, 1.5)),  # 3.2 1B
        ((3072, 8192), (256, 1.0)),  # 3.2 3B
        ((4096, 14336), (1024, 1.3)),  # 3 and 3.1 8B
        ((8192, 28672), (4096, 1.3)),  # 70B
        ((16384, 53248), (4096, 1.2)),  # 405B
        ((576, 1536), (256, 1.0)),
    ],
)
def test_fields_of_published_models(hidden, fields):
    assert tuple(ffn_fields(*hidden).values()) == fields


def test_any_hidden_dim_has_fields():
    rng = random.Random(0)
    for _ in range(3000):
        dim, hidden = 2 * rng.randint(1, 9999), rng.randint(1, 60000)
        fields = ffn_fields(dim, hidden).values()
        ffn = dict(zip(("multiple_of", "ffn_dim_multiplier"), fields))
        assert small_config(dim=dim, **ffn).hidden_dim == hidden


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)


def test_older_configs(folder):
    """Before transformers 5: rope_theta and rope_scaling on their own."""
    plain = dict(rope_parameters=..., rope_theta=12345.0)
    change_json(folder / "config.json", **plain, rope_scaling=LLAMA3)
    found = llamalib.load(folder, **PLAIN).config
    assert found.rope_theta == 12345 and found.scaling_factor == 8
    change_json(folder / "config.json", rope_scaling=None, head_dim=...)
    found = llamalib.load(folder, **PLAIN).config
    assert found.rope_theta == 12345 and not found.use_scaled_rope


def test_several_files(folder):
    """Whatever their names are, the index lists them."""
    expected = llamalib.load(folder, **PLAIN).state_dict()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    listed = {}
    for i in range(3):
        file = f"model-{i + 1:05d}-of-00003.safetensors"
        part = {name: tensors[name] for name in names[i::3]}
        save_file(part, folder / file)
        listed |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    found = llamalib.load(folder, **PLAIN).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no model-00002-of-00003"):
        llamalib.load(folder)
    index.write_text(json.dumps({"weight_map": {"x": "../y.safetensors"}}))
    with pytest.raises(ValueError, match="weight_map is {'x': '../y"):
        llamalib.load(folder)
    for name in ("y" * 300, "é" * 200, "a\x1b[31m", "a\0", 5):
        index.write_text(json.dumps({"weight_map": {"x": name}}))
        with pytest.raises(ValueError, match="weight_map is .*expected names"):
            llamalib.load(folder)
    index.write_text("{}")
    with pytest.raises(ValueError, match="weight_map is None; expected names"):
        llamalib.load(folder)
    first = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": first}}))
    with pytest.raises(ValueError, match="has no tensor layers.0"):
        llamalib.load(folder)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match="has both"):
        llamalib.load(folder)


def test_a_download_of_a_whole_page(tmp_path):
    """It has both formats: Meta's is taken, if it is complete."""
    write_folder(tmp_path)
    metas = write_checkpoint(tmp_path / "original")
    assert llamalib.find_checkpoint(tmp_path) == metas
    (metas / "consolidated.00.pth").unlink()
    assert llamalib.find_checkpoint(tmp_path) == tmp_path
    assert llamalib.load(tmp_path, **PLAIN).config.n_layers == 2


def test_a_folder_of_checkpoints(tmp_path):
    one = write_checkpoint(tmp_path / "one" / "original")
    (tmp_path / "notes").mkdir()
    assert llamalib.find_checkpoint(tmp_path) == one
    two = write_folder(tmp_path / "two")
    with pytest.raises(ValueError, match=f"(?s)several.*{one}.*{two}"):
        llamalib.find_checkpoint(tmp_path)


# -- other architectures -----------------------------------------------------


@pytest.mark.parametrize(
    "changes, said",
    [
        (dict(model_type="mistral"), "model_type is 'mistral'"),
        (dict(model_type=...), "model_type is None"),
        (dict(architectures=["LlamaForSequenceClassification"]), "architect"),
        (dict(attention_bias=True), "attention_bias is True"),
        (dict(mlp_bias=True), "mlp_bias is True"),
        (dict(sliding_window=4096), "sliding_window is 4096"),
        (dict(layer_types=["sliding_attention"]), "layer_types"),
        (dict(num_local_experts=8), "num_local_experts is 8"),
        (dict(vision_config={"x": 1}), "vision_config"),
        (dict(quantization_config={"bits": 4}), "quantization_config"),
        (dict(hidden_act="gelu"), "hidden_act is 'gelu'"),
        (dict(auto_map={"AutoModel": "code.Mine"}), "auto_map"),
        (dict(rope_parameters={"rope_type": "yarn"}), "rope_type is 'yarn'"),
        (dict(rope_parameters=5), "rope_parameters is 5"),
        (
            dict(rope_scaling={"rope_type": "llama3", "factor": 8}),
            "rope_scaling is .*'factor': 8.*; expected .*'default'",
        ),
        (
            dict(rope_theta=1e4, rope_parameters={"rope_theta": 5e5}),
            "rope_theta is 10000.0; expected rope_parameters' 500000.0",
        ),
        (dict(layer_types=5), "layer_types is 5"),
        (
            dict(rope_parameters={"rope_type": "llama3", "factor": 8}),
            "low_freq_factor is None; expected 1.0",
        ),
        (
            dict(hidden_size=...),
            "hidden_size must be a whole number .* got None",
        ),
        (
            dict(hidden_size="64"),
            "hidden_size must be a whole number from 1 .* got '64'",
        ),
        (
            dict(num_key_value_heads=3),
            "num_attention_heads must be .* num_key_value_heads = 3, got 8",
        ),
        (dict(head_dim=7), r"head must be even, .* got 7 \(head_dim\)"),
        (
            dict(rms_norm_eps=-1),
            "rms_norm_eps must be a number from 1e-37 to 1, got -1",
        ),
        (dict(tie_word_embeddings="yes"), "tie_word_embeddings is 'yes'"),
        (dict(vocab_size=557), "embed_tokens.weight is .556, 64.; expected"),
        (dict(vocab_size=500), "is 556; expected at most 500, the vocab_size"),
        (dict(num_hidden_layers=3), "has no tensor layers.2"),
        (dict(num_hidden_layers=1), "has an unknown tensor layers.1"),
        (
            dict(intermediate_size=170),
            "_proj.weight is .64, 256.; expected .64, 170.",
        ),
        (
            dict(tie_word_embeddings=False),
            "tie_word_embeddings is False; expected true",
        ),
    ],
)
def test_other_configs_are_refused(folder, changes, said):
    change_json(folder / "config.json", **changes)
    with pytest.raises(ValueError, match=said) as error:
        llamalib.load(folder, **PLAIN)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("key", [*FIELDS, "rope_theta", "factor"])
@pytest.mark.parametrize("value", ["x", -1, 10**400, [1], {}])
def test_errors_name_hugging_faces_keys(folder, key, value):
    rope = dict(LLAMA3, rope_theta=1e4)
    changes = {"rope_parameters": rope}
    (rope if key in ("rope_theta", "factor") else changes)[key] = value
    change_json(folder / "config.json", **changes)
    with pytest.raises(ValueError) as error:
        llamalib.load(folder, **PLAIN)
    said = str(error.value).removeprefix(str(folder / "config.json"))
    assert re.match(rf": {key} must be .*, got .", said)
    ours = {f.name for f in dataclasses.fields(llamalib.ModelArgs)}
    assert not set(re.findall(r"\w+", said)) & (ours - {key})


Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.update({f"{Q}.bias": torch.ones(64)}), f"{Q}.bias"),
        (lambda t: t.update({"score.weight": torch.ones(2)}), "score.weight"),
        (lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"][:9]}), Q),
        (
            lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"].char()}),
            f"{Q}.weight is 'torch.int8",
        ),
        (
            lambda t: t.update(
                {f"{Q}.weight": t[f"{Q}.weight"].to(torch.float8_e4m3fn)}
            ),
            f"{Q}.weight is 'torch.float8",
        ),
        (lambda t: t.pop(f"{Q}.weight"), "attention.wq.weight"),
        (
            lambda t: t.update(
                {
                    Q.replace(".0.", ".00.") + ".weight": t[
                        f"{Q}.weight"
                    ].clone()
                }
            ),
            "layers.00.self_attn",
        ),
        (
            lambda t: t.update({"lm_head.weight": torch.ones(556, 64)}),
            "expected false: lm_head.weight is another",
        ),
        (
            lambda t: t.update(
                {"model.layers.x.mlp.up_proj.weight": t[f"{Q}.weight"].clone()}
            ),
            "model.layers.x.mlp",
        ),
    ],
)
def test_other_tensors_are_refused(folder, change, said):
    change_tensors(folder, change)
    with pytest.raises(ValueError, match=said) as error:
        llamalib.load(folder, **PLAIN)
    assert str(folder) in str(error.value)


def test_a_tied_output_written_twice(folder):
    def twice(tensors):
        same = tensors["model.embed_tokens.weight"]
        tensors["lm_head.weight"] = same.clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    change_tensors(folder, twice)
    assert llamalib.load(folder, **PLAIN).tied


# -- tokenizers --------------------------------------------------------------

MIXED = [
    "The quick brown fox, 12345 times; isn't it?",
    "Straße, naïve café, ŁÓDŹ, İstanbul",
    "Быстрая бурая лиса… 2026 год",
    "速い茶色の狐が怠け者の犬を飛び越える。",
    "الثعلب البني السريع ١٢٣",
    "नमस्ते दुनिया, स्वागत है",
    "🦙👩‍👩‍👧‍👦🏳️‍🌈 ok",
    "\t\tdef f(x):\r\n\r\n    return x**2   \n\n\n",
    "   leading   spaces   ",
    "<|eot_id|> <|begin_of_text|>x",
]


def mixed_lines(n=10_000):
    """Return n lines of mixed scripts, all different."""
    rng = random.Random(0)
    lines = []
    for _ in range(n):
        parts = rng.choices(MIXED, k=3)
        cut = [
            p[rng.randrange(len(p)) :] + p[: rng.randrange(9)] for p in parts
        ]
        lines.append(rng.choice(["", " ", "\n", "  "]).join(cut))
    return lines


def same_ids(ours, library):
    library.encode_special_tokens = True  # those in a text are text
    lines = mixed_lines()
    expected = library.encode_batch(lines, add_special_tokens=False)
    for line, found in zip(lines, expected):
        ids = ours.encode(line, bos=False, eos=False)
        assert ids == found.ids, line
        assert ours.decode(ids) == line


def test_the_published_tokenizer_rebuilt(tmp_path):
    file = os.environ.get("LLAMA3_TOKENIZER")
    if not file:
        pytest.skip("LLAMA3_TOKENIZER names no published tokenizer.model")
    path = tokenizer_json(file, tmp_path / "tokenizer.json")
    ours = read_tokenizer_json(path)
    assert type(ours) is Tokenizer
    same_ids(ours, tokenizers.Tokenizer.from_file(str(path)))
    assert ours.special_tokens == Tokenizer.from_file(file).special_tokens


def test_the_pockets_tokenizer_rebuilt(tmp_path):
    file = ROOT / "data" / "pocket-llama"
    path = tokenizer_json(
        file / "tokenizer.model", tmp_path / "tokenizer.json"
    )
    ours = read_tokenizer_json(path)
    assert type(ours) is Tokenizer
    same_ids(ours, tokenizers.Tokenizer.from_file(str(path)))


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
def test_other_tokenizers(tmp_path, kind):
    """Those of small open Llamas: GPT-2's kind, and SentencePiece's."""
    special = ["<unk>", "<s>", "</s>"]
    if kind == "byte level":
        library = tokenizers.Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        library.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = BpeTrainer(
            vocab_size=900, special_tokens=special, initial_alphabet=alphabet
        )
        library.train_from_iterator(MIXED, trainer)
    else:
        pieces = [f"<0x{b:02X}>" for b in range(256)]
        vocab = {p: i for i, p in enumerate(special + pieces + ["▁"])}
        library = tokenizers.Tokenizer(
            models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True)
        )
        library.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        library.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        library.add_special_tokens(special)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    ours = read_tokenizer_json(path)
    assert ours.eos_id is None and not ours.stop_tokens
    ours.eos_id = 2
    assert type(ours) is LibraryTokenizer
    assert ours.n_words == library.get_vocab_size()
    assert ours.bos_id == 1
    same_ids(ours, library)
    ids = ours.encode("a🦙b</s>c", bos=True, eos=True)
    assert ids[0] == 1 and ids[-1] == 2 and ids.count(2) == 1
    assert "".join(ours.decode_stream(ids[1:-1])) == "a🦙b</s>c"
    # a row that is no token, inside a text with spaces
    ours.vocab_size += 1
    spaced = ours.encode("a b c", bos=False, eos=False)
    spaced.insert(len(spaced) - 2, ours.n_words)
    assert "".join(ours.decode_stream(spaced)) == "a b c"
    assert ours.decode_bytes(ids[1:-1]).decode().strip() == "a🦙b</s>c"
    some = dict(bos=False, eos=False, allowed_special=["</s>"])
    assert ours.encode("a</s>", **some)[-1] == 2
    half = ours.encode("🐍", bos=False, eos=False)[:-1]
    assert "\ufffd" in "".join(ours.decode_stream(half))
    with pytest.raises(ValueError, match="ids contains 9999, but the voc"):
        ours.decode([9999])
    with pytest.raises(ValueError, match="allowed_special: .'<x>'. are no"):
        ours.encode("a", bos=False, eos=False, allowed_special="<x>")
    with pytest.raises(ValueError, match="surrogates not allowed"):
        ours.encode("\ud800", bos=False, eos=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["model"].update(ignore_merges=False),
        lambda d: d["model"]["merges"].pop(),
        lambda d: d["model"]["merges"].reverse(),
        lambda d: d["pre_tokenizer"]["pretokenizers"][0].update(invert=True),
        lambda d: d.update(normalizer={"type": "NFC"}),
    ],
)
def test_only_llama_3s_is_rebuilt(folder, change):
    """The library runs any other."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    found = read_tokenizer_json(path)
    assert type(found) is LibraryTokenizer


BROKEN_TOKENIZERS = [
    "{}",
    '{"model": 3}',
    "[]",
    "<html>",
    "",
    '{"model": {"type": "BPE", "vocab": {}, "merges": []}}',
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}}',
]


@pytest.mark.parametrize(
    "changes", [{"id": 303.0}, {"content": 5}, {"content": "\ud800"}]
)
def test_an_added_token_of_a_wrong_type(folder, changes):
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["added_tokens"][3].update(changes)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="tokenizer.json cannot be read"):
        llamalib.load(folder, **PLAIN)


@pytest.mark.parametrize("change", [{0.0: 0}, {True: 1}])
def test_a_token_whose_id_is_no_whole_number(folder, change):
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    ((value, i),) = change.items()
    vocab = data["model"]["vocab"]
    (token,) = (token for token, found in vocab.items() if found == i)
    vocab[token] = value
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="tokenizer.json cannot be read"):
        llamalib.load(folder, **PLAIN)


@pytest.mark.parametrize("text", BROKEN_TOKENIZERS)
def test_a_broken_tokenizer(folder, text):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="tokenizer.json"):
        llamalib.load(folder, **PLAIN)


def test_tokenizer_json_comes_first(folder):
    """A model that was trained further may have renamed its tokens."""
    path = folder / "tokenizer.json"
    text = path.read_text().replace("<|reserved_special_token_0|>", "<|im|>")
    path.write_text(text)
    for model in (b"\n\x0e\n\x05<unk>\x15", None):
        if model:
            (folder / "tokenizer.model").write_bytes(model)
        else:
            write_tokenizer(folder / "tokenizer.model")
        found = llamalib.load(folder, **PLAIN).tokenizer
        assert "<|im|>" in found.special_tokens and found.n_words == 556
    path.unlink()
    assert llamalib.load(folder, **PLAIN).tokenizer.n_words == 556
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15")
    with pytest.raises(ValueError, match="SentencePiece .*save_pretrained"):
        llamalib.load(folder, **PLAIN)


@pytest.mark.parametrize(
    "change",
    [
        {"special": False},
        {"lstrip": True},
        {"single_word": True},
    ],
)
def test_added_tokens_of_another_kind(folder, change):
    """The library runs them."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["added_tokens"][7].update(content="<tool>", **change)
    path.write_text(json.dumps(data))
    ours = read_tokenizer_json(path)
    assert type(ours) is LibraryTokenizer
    library = tokenizers.Tokenizer.from_file(str(path))
    library.encode_special_tokens = True
    for text in ("a <tool> b", "a<tool>b"):
        expected = library.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, bos=False, eos=False) == expected


@pytest.mark.parametrize("kind", [Tokenizer, LibraryTokenizer])
def test_rows_that_are_no_tokens(tmp_path, kind, capsys):
    """Some models have more rows than their tokenizer has tokens."""
    llama = random_llama(small_config(vocab_size=600))
    folder = write_folder(tmp_path / "model", llama)
    if kind is LibraryTokenizer:
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        data["model"]["merges"].pop()
        path.write_text(json.dumps(data))
    found = llamalib.load(folder, **PLAIN).tokenizer
    assert type(found) is kind and found.n_words == 556
    assert found.decode([97, 599, 98]) == "ab"
    assert "".join(found.decode_stream([97, 599, 98])) == "ab"
    with pytest.raises(
        ValueError, match="ids contains 600, but the vocabulary has 600"
    ):
        found.decode([600])
    if kind is Tokenizer:
        assert main(["convert", str(folder), str(tmp_path / "new")]) == 1
        assert "vocab_size is 600; expected 556" in capsys.readouterr().err


def test_nothing_before_a_text(folder):
    """If tokenizer.json puts nothing there, whatever config.json says."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["merges"].pop()
    path.write_text(json.dumps(data))
    ours = read_tokenizer_json(path)
    library = tokenizers.Tokenizer.from_file(str(path))
    assert ours.bos_id is None
    assert ours.encode("a", bos=True, eos=False) == library.encode("a").ids


def test_a_text_is_encoded_whole(folder):
    """Truncation and padding in the file are switched off."""
    path = folder / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    expected = library.encode("abc abc abc").ids
    library.enable_truncation(4)
    library.enable_padding(length=20)
    library.model.ignore_merges = False
    library.save(str(path))
    ours = read_tokenizer_json(path)
    assert type(ours) is LibraryTokenizer
    assert ours.encode("abc abc abc", bos=False, eos=False) == expected


@pytest.mark.parametrize(
    "ids", [["x"], [[1]], {}, -1, 1.5, True, 556, [1, None]]
)
def test_invalid_end_ids(folder, ids):
    change_json(folder / "config.json", eos_token_id=ids)
    if ids == {}:
        ids = [{}]
        change_json(folder / "config.json", eos_token_id=ids)
    with pytest.raises(
        ValueError, match="eos_token_id is .*expected ids from"
    ):
        llamalib.load(folder, **PLAIN)


@pytest.mark.parametrize("kind", [Tokenizer, LibraryTokenizer])
def test_what_ends_a_turn(folder, kind):
    """generation_config.json says more than config.json."""
    assert 309 in llamalib.load(folder, **PLAIN).tokenizer.stop_tokens
    if kind is LibraryTokenizer:
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        data["model"]["merges"].pop()
        path.write_text(json.dumps(data))
    assert type(llamalib.load(folder, **PLAIN).tokenizer) is kind
    change_json(folder / "config.json", eos_token_id=301)
    assert llamalib.load(folder, **PLAIN).tokenizer.stop_tokens == {301}
    (folder / "generation_config.json").write_text(
        '{"eos_token_id": [301, 309]}'
    )
    found = llamalib.load(folder, **PLAIN).tokenizer
    assert found.stop_tokens == {301, 309} and found.eos_id == 301
