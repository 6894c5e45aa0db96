"""The explorer, in headless Chromium: what its stations show, and how.

Run by `make test-browser`; needs chromium and chromedriver on the PATH.
"""

import base64
import json
import math
import re
import time

import pytest
import torch

import llamalib
from llamalib import next_token_probs
from tests.browser import (
    FAINT,
    call,
    elements,
    show,
    wait_for,
)
from tools import explorer, page_models

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

STATIONS = [each["key"] for each in explorer.TEXTS["station"]]
PROMPTS_OF = {each["key"]: each["prompts"] for each in explorer.TEXTS["model"]}
PROMPT, SECOND, *_ = PROMPTS_OF["pocket"]
POCKETS = [
    *("The capital of France is", "Once upon a time there was a", "Monday,"),
    *("12 + 7 =", "The language of Brazil is", "\n\n", "🦙", "1, 2, 3,"),
    *('"Good," said', "What is the capital of Peru?"),
]
ENGLISH = [
    *PROMPTS_OF["smollm2"],
    "My name is",
    "Mary had a little lamb. Mary",
]

# -- without a browser -------------------------------------------------------


def test_code_is_the_librarys():
    """Each line that a station shows stands in the file that it names."""
    for each in explorer.TEXTS["station"]:
        file, name, *ends = each["code"]
        text = (explorer.ROOT / "llamalib" / file).read_text("utf-8")
        code = explorer.code_lines(file, name, *ends)
        assert 1 <= len(code.splitlines()) <= 8, each["key"]
        for line in code.splitlines():
            assert line.strip() in text
    with pytest.raises(ValueError, match="no line begins with 'x = 1'"):
        explorer.code_lines("model.py", "rms_norm", "x = 1", "return")


def test_stations_follow_the_series():
    files = [each["file"] for each in explorer.stations()]
    assert len({*files}) == 10  # each notebook of the main road
    large = explorer.letters()
    assert large["F"] == 8192 and large["hd"] == 64


def test_activations_are_those_of_record(pocket):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    found = page_models.activations(pocket, ids)
    seen = llamalib.record(pocket, torch.tensor(ids))
    for i in range(pocket.config.n_layers):
        name = f"layers.{i}"
        x, added = seen[f"{name}.in"], seen[f"{name}.attention.out"]
        assert torch.equal(found[f"x.{i}"], x)
        assert torch.allclose(found[f"h.{i}"], x + added, atol=1e-4)
        assert torch.equal(found[f"x.{i + 1}"], seen[f"{name}.out"])
    probs = pocket(torch.tensor(ids)).softmax(-1).topk(3)
    assert torch.equal(found["lens.ids"][-1], probs.indices.int())


def test_the_page_in_a_notebook_needs_nothing_else(tmp_path, monkeypatch):
    """Its file has modules, weights and runs; the output only a frame."""
    monkeypatch.chdir(tmp_path)
    shown = explorer.show()
    page = (tmp_path / "explorer.html").read_text(encoding="utf-8")
    head = page.split("<script>")[0]
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", head)
    files = page[page.index("window.llama_files") :]
    for name in ("pocket/model.safetensors", "pocket/tokenizer.json"):
        assert f'"models/{name}"' in files
    assert '"runs/pocket-2.gz"' in files and "part-00.gz" not in files
    places = re.search(r'"importmap">(.*?)</script>', page)[1]
    for name, address in json.loads(places)["imports"].items():
        _, _, data = address.partition("base64,")
        text = base64.b64decode(data).decode()
        others = re.findall(r'^(?:import|\}).* from "(.*?)"', text, re.M)
        assert {*others} <= {*json.loads(places)["imports"]}, name
    output = shown._repr_html_()  # a picture, which makes room for the frame
    assert '<iframe class="llama-frame" src="explorer.html"' in output
    assert 'src="data:image/png;base64' in output and "alt=" in output
    assert "explorer.html" in (explorer.ROOT / ".gitignore").read_text()


def test_a_page_without_smollm2_has_the_pocket(tmp_path, monkeypatch):
    monkeypatch.setattr(page_models, "SMOLLM2", tmp_path / "nothing")
    models, runs = explorer.write_models(tmp_path / "site")
    assert [each["key"] for each in models] == ["pocket"]
    assert {run["model"] for run in runs} == {"pocket"} and len(runs) == 3
    text = explorer.made(models, runs)
    assert "SmolLM2" not in text.partition("export const models")[2]


def test_recorded_runs_are_small(page_folder):
    """A run of SmolLM2 has 1.5 MB at most; of the pocket 0.25 MB."""
    for file in (page_folder / "_static" / "runs").glob("*.gz"):
        most = 1.5e6 if file.name.startswith("smollm2") else 0.25e6
        assert file.stat().st_size < most, file.name


# -- what the stations show, against llamalib --------------------------------

browser = pytest.mark.browser
READY = "return !!window.llama?.explorers?.[0]?.trace?.llama"
SHOWN = "return !!window.llama?.explorers?.[0]?.trace"
FETCH = "const e = llama.explorers[0]; e.choose_model(e.chosen);"


def open_with(driver, address, query, fetch=True):
    """Open the page with its model at work, or only its recorded run."""
    driver.get(f"{address}?{query}")
    wait_for("numbers", lambda: driver.execute_script(SHOWN), 60)
    if fetch:
        driver.execute_script(FETCH)
        wait_for("the model", lambda: driver.execute_script(READY), 120)


@pytest.fixture
def ready(opened):
    """Return the driver with the page, once the pocket is there."""
    opened.execute_script("sessionStorage.clear()")
    open_with(opened, opened.current_url.partition("?")[0], "model=pocket")
    return opened


SHOW = """
const e = window.llama.explorers[0];
const tables = () => [...e.panel.element.querySelectorAll(".llama-out table")].map(
  table => [...table.tBodies[0].rows].map(
    row => [...row.cells].map(cell => cell.textContent)));
"""
SET = (
    SHOW + "e.form.field.value = given[0].prompt ?? e.settings.prompt;"
    "Object.assign(e.settings, {next: '', token: -1}, given[0]);"
    "await e.run(); return e.trace.ids;"
)
# the tables of a station for each of many settings
TABLES = SHOW + (
    "return given[0].map(settings => { Object.assign(e.settings, settings);"
    " e.panel.draw(); return tables(); });"
)


def number(text):
    """Return the number that a cell begins with; of "<0.0001" 0."""
    if text.startswith("<"):
        return 0.0
    found = re.match(r"[−>]?[\d,]*\.?\d+", text)
    return float(found[0].replace("−", "-").replace(",", "").lstrip(">"))


def all_numbers(text):
    return [number(part) for part in text.strip("()").split(", ")]


def agree(shown, expected, digits=2, size=0.0):
    """Compare a number with what a cell shows, rounded to some digits.

    size: of the numbers that it comes from, which float32 rounds.
    """
    if abs(expected) > 99:  # four digits of a large number
        digits = min(digits, 1) if abs(expected) < 999 else 0
    tolerance = 0.51 * 10**-digits + 1e-5 * size + 1e-4
    assert math.isclose(shown, float(expected), abs_tol=tolerance)


def rms(x):
    return x.pow(2).mean().sqrt()


class Expected:
    """What PyTorch computes for one prompt."""

    def __init__(self, llama, ids):
        self.llama, self.ids, self.c = llama, ids, llama.config
        self.tokens = torch.tensor(ids)
        self.seen = page_models.activations(llama, ids)
        for i, block in enumerate(llama.layers):
            for name, x in dict(attention_norm="x", ffn_norm="h").items():
                norm = getattr(block, name)
                self.seen[f"{name}.{i}"] = norm(self.seen[f"{x}.{i}"])
        self.maps = llamalib.attention_maps(llama, self.tokens)
        angles = llamalib.precompute_freqs_cis(
            self.c.head_dim, 512, self.c.rope_theta, self.c.scaling_factor
        )
        self.angles = angles
        self.t = len(ids) - 1

    def at(self, name, layer, t=None):
        found = self.seen[f"{name}.{layer}"]
        return found if t is None else found[t]

    def head(self, name, layer, head):
        """Return one head's queries, keys or values (T, hd)."""
        x = self.at(name, layer).unflatten(-1, (-1, self.c.head_dim))
        n_rep = self.c.n_heads // self.c.n_kv_heads
        return x[:, head if name == "q" else head // n_rep]

    def rotated(self, name, layer, head, shift=0):
        x = self.head(name, layer, head)[:, None]  # (T, 1, hd)
        freqs = self.angles[shift : shift + len(x)]
        return llamalib.apply_rotary_emb(x, x, freqs)[0][:, 0]


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    return llamalib.load(smollm2_file, device="cpu", dtype=torch.float32)


@pytest.fixture(params=["pocket", "smollm2"])
def both(request, opened):
    """Return the driver with a model at work, and ten texts' numbers."""
    key, prompts = request.param, POCKETS
    if key == "smollm2":
        prompts = ENGLISH
    opened.execute_script("sessionStorage.clear()")
    address = opened.current_url.partition("?")[0]
    open_with(opened, address, f"model={key}")
    return opened, expected_of(request.getfixturevalue(key), prompts)


KNOWN = {}


def expected_of(llama, prompts):
    """Return what PyTorch computes, by prompt; once for all tests."""
    for text in prompts:
        if (id(llama), text) not in KNOWN:
            ids = llama.tokenizer.encode(text, bos=True, eos=False)
            with torch.no_grad():
                KNOWN[id(llama), text] = Expected(llama, ids)
    assert len(prompts) == 10
    return {text: KNOWN[id(llama), text] for text in prompts}


def each_head(station, x, **more):
    """Return settings for each layer and head; of many, one a layer."""
    layers, heads = range(x.c.n_layers), range(x.c.n_heads)
    pairs = [(layer, head) for layer in layers for head in heads]
    if len(pairs) > 99:
        pairs = [(layer, layer % x.c.n_heads) for layer in layers]
    return [
        dict(station=station, layer=layer, head=head, **more)
        for layer, head in pairs
    ]


def check_qkv(tables, settings, x):
    layer, head = settings["layer"], settings["head"]
    for row, name in zip(tables[1], "qkv", strict=True):
        own = x.head(name, layer, head)[x.t]
        for shown, value in zip(all_numbers(row[1]), own[:6], strict=True):
            agree(shown, value)
        agree(number(row[2]), own.norm(), size=own.norm())


def check_rope(tables, settings, x):
    layer, head, shift = (settings[k] for k in ("layer", "head", "shift"))
    pair = slice(2 * settings["pair"], 2 * settings["pair"] + 2)
    numbers = dict(row[:2] for row in tables[0])
    before = x.head("q", layer, head)[x.t, pair]
    after = x.rotated("q", layer, head, shift)[x.t, pair]
    k = settings["pair"]
    for name, values in (("before", before), ("after", after)):
        shown = all_numbers(numbers[f"pair {k} {name}"])
        for value, own in zip(shown, values, strict=True):
            agree(value, own, 3, 10)
    q, key = (x.rotated(name, layer, head) for name in "qk")
    scores = key @ q[x.t] / math.sqrt(x.c.head_dim)
    for s, row in enumerate(tables[1]):
        assert number(row[1]) == x.t - s
        agree(number(row[2]), scores[s], 3, 100)
        agree(number(row[3]), scores[s], 3, 1000)  # moved: the same


def check_attention(tables, settings, x):
    layer, head = settings["layer"], settings["head"]
    q, key = (x.rotated(name, layer, head) for name in "qk")
    scores = key @ q[x.t] / math.sqrt(x.c.head_dim)
    rows = tables[0]
    assert len(rows) == len(x.ids)
    for s, row in enumerate(rows):
        agree(number(row[1]), scores[s], 2, 100)
        agree(number(row[2]), x.maps[layer, head, x.t, s], 2)


def check_values(tables, settings, x):
    layer, head = settings["layer"], settings["head"]
    weights, v = x.maps[layer, head, x.t], x.head("v", layer, head)
    shares = weights[:, None] * v
    *rows, total = tables[0]
    for s, row in enumerate(rows):
        agree(number(row[1]), weights[s])
        for shown, own in zip(all_numbers(row[2]), v[s][:3], strict=True):
            agree(shown, own)
        for shown, own in zip(all_numbers(row[4]), shares[s][:3], strict=True):
            agree(shown, own)
    for shown, own in zip(all_numbers(total[4]), shares.sum(0), strict=False):
        agree(shown, own, size=10)
    added = x.at("h", layer, x.t) - x.at("x", layer, x.t)
    for shown, own in zip(all_numbers(tables[1][1][2]), added, strict=False):
        agree(shown, own, size=100)
    agree(number(tables[1][1][3]), added.norm(), size=added.norm())


CHECKS = {
    "qkv": (check_qkv, {}),
    "rope": (check_rope, dict(pair=3, shift=57)),
    "attention": (check_attention, {}),
    "values": (check_values, {}),
}


@browser
@pytest.mark.parametrize("station", CHECKS)
def test_numbers_of_each_head(both, station):
    """Ten prompts, every layer and every head; of SmolLM2 30 pairs."""
    check, more = CHECKS[station]
    ready, expected = both
    for text, x in expected.items():
        assert call(ready, SET, dict(prompt=text, station=station)) == x.ids
        settings = each_head(station, x, **more)
        found = call(ready, TABLES, settings)
        for each, tables in zip(settings, found, strict=True):
            check(tables, each, x)


def check_norm(tables, settings, x):
    layer, side = settings["layer"], settings["side"]
    before = x.at("x" if side == "attention" else "h", layer)
    after = x.at(f"{side}_norm", layer)
    for t, row in enumerate(tables[0]):
        agree(number(row[2]), rms(before[t]), 3, 100)
        plain = before[t] / torch.sqrt(rms(before[t]) ** 2 + x.c.norm_eps)
        agree(number(row[4]), rms(plain), 3)
        agree(number(row[5]), rms(after[t]), 3)


def check_residual(tables, settings, x):
    layer, side = settings["layer"], settings["side"]
    before, after = x.at("x", layer), x.at("h", layer)
    if side == "ffn":
        before, after = after, x.at("x", layer + 1)
    added = after - before
    for t, row in enumerate(tables[1]):
        lengths = before[t].norm(), added[t].norm(), after[t].norm()
        for column, own in zip((1, 2, 4), lengths):
            agree(number(row[column]), own, size=10 * own)
        cosine = torch.cosine_similarity(before[t], added[t], dim=0)
        agree(number(row[3]), cosine)
    for row, own in zip(tables[0], (before, added, after), strict=True):
        for shown, value in zip(all_numbers(row[2]), own[x.t], strict=False):
            agree(shown, value, size=100)


def check_swiglu(tables, settings, x):
    gate, up = (x.at(name, settings["layer"], x.t) for name in ("gate", "up"))
    products = torch.nn.functional.silu(gate) * up
    shown = [int(row[0].removeprefix("neuron ")) for row in tables[0]]
    least = products[shown].abs().min()
    assert (products.abs() > least + 1e-3).sum() <= len(shown) == 10
    for i, row in zip(shown, tables[0]):
        own = gate[i], torch.nn.functional.silu(gate[i]), up[i], products[i]
        for text, value in zip(row[1:], own, strict=True):
            agree(number(text), value, size=100)


LAYER_CHECKS = {
    "norm": (check_norm, ("attention", "ffn")),
    "residual": (check_residual, ("attention", "ffn")),
    "swiglu": (check_swiglu, ("attention",)),
}


@browser
@pytest.mark.parametrize("station", LAYER_CHECKS)
def test_numbers_of_each_layer(both, station):
    check, sides = LAYER_CHECKS[station]
    ready, expected = both
    for text, x in expected.items():
        assert call(ready, SET, dict(prompt=text, station=station)) == x.ids
        settings = [
            dict(station=station, layer=layer, side=side)
            for layer in range(x.c.n_layers)
            for side in sides
        ]
        found = call(ready, TABLES, settings)
        for each, tables in zip(settings, found, strict=True):
            check(tables, each, x)


@browser
def test_numbers_outside_the_blocks(both):
    """Embedding, stream, logits, sampling: ten prompts, each position."""
    ready, expected = both
    for text, x in expected.items():
        call(ready, SET, dict(prompt=text))
        every = [
            dict(station=station, token=t, bars=15, **sampling)
            for t in range(len(x.ids))
            for station, sampling in (
                ("embed", {}),
                ("stream", {}),
                ("logits", {}),
                ("sample", dict(temperature=1.3, top_k=8, top_p=0.95)),
            )
        ]
        found = iter(call(ready, TABLES, every))
        for t in range(len(x.ids)):
            check_embedding(next(found), x, t)
            check_stream(next(found), x, t)
            check_logits(next(found), x, t)
            check_sample(next(found), x, t)


def check_embedding(tables, x, t):
    matrix = x.llama.tok_embeddings.weight.detach()
    for i, row in zip(x.ids, tables[0], strict=True):
        assert int(row[1]) == i
        agree(number(row[4]), matrix[i].norm())
        for shown, own in zip(all_numbers(row[3]), matrix[i], strict=False):
            agree(shown, own)
    similar = torch.cosine_similarity(matrix, matrix[x.ids[t]][None])
    similar[x.ids[t]] = -1
    best = similar.topk(6).values
    for row, own in zip(tables[1], best, strict=True):
        agree(number(row[2]), own)
        agree(similar[int(row[1])], own, 5)


def check_stream(tables, x, t):
    ranks = x.seen["lens.ranks"][:, t]
    for layer, row in enumerate(tables[0]):
        own = x.at("x", layer, t).norm()
        agree(number(row[1]), own, 1, size=10 * own)
        rank = int(row[2].replace(",", ""))
        assert abs(rank - ranks[layer]) <= 1 + 0.002 * rank  # near ties
        shown = [number(p) for p in re.findall(r"” ([<>\d.]+)", row[3])]
        best = x.seen["lens.probs"][layer, t]
        for value, p in zip(shown, best, strict=True):
            agree(value, p)
    assert ranks[-1] == int(tables[0][-1][2]) == 1


def check_logits(tables, x, t):
    logits = x.seen["logits"][t]
    probs = logits.softmax(-1)
    assert len(tables[0]) == 15
    for row, p in zip(tables[0], probs.topk(15).values, strict=True):
        i = int(row[1])
        agree(probs[i], p, 5)
        agree(number(row[2]), logits[i], size=100)
        agree(number(row[3]), p)


def check_sample(tables, x, t):
    probs = next_token_probs(x.seen["logits"][t], 1.3, 8, 0.95)
    *rows, others = tables[0]
    kept = sorted(number(r[2]) for r in rows if r[2] != "cut off")
    expected = probs[probs > 0].sort().values
    assert len(kept) == len(expected)
    for shown, p in zip(kept, expected, strict=True):
        agree(shown, p)
    assert others[2] == "cut off"


# -- before a model is there --------------------------------------------------


@browser
def test_a_recorded_run_is_what_the_model_computes(both):
    """Numbers that come with the page: 16 bits; the drawn ones fewer."""
    ready, _ = both
    run, fresh = call(
        ready,
        """
        const e = llama.explorers[0], { runs } = llama;
        const found = runs.find((it) => it.model === e.settings.model);
        const a = await llama.read_run(e.model, found);
        await e.trace.follow(a.ids, () => true);
        const rows = (it) => ["x", "q", "v", "h"].flatMap((name) =>
          it.ids.map((_, t) => Array.from(it.row(name, e.layer, t))));
        const last = a.ids.length - 1, L = e.config.n_layers;
        const best = (it) => {
          const all = it.logits(last);
          return llama.top(all, 12).map((i) => [i, all[i]]);
        };
        const neurons = (it) => {
          const all = it.product(e.layer, last);
          return llama.top(all.map(Math.abs), 10).map((i) => [i, all[i]]);
        };
        return [a, e.trace].map((it) => [rows(it), best(it), neurons(it),
          it.lens(last).map(({ rank, top }) => [rank, top[0].p])]);
        """,
    )
    for shown, own in zip(run[0], fresh[0], strict=True):
        shown, own = torch.tensor(shown), torch.tensor(own)
        assert ((shown - own).abs() <= 2e-3 * (1 + own.abs())).all()
    for part in (1, 2):
        for (i, shown), (j, own) in zip(run[part], fresh[part], strict=True):
            assert i == j and abs(shown - own) < 2e-3 * (1 + abs(own))
    for (rank, p), (own_rank, own) in zip(run[3], fresh[3], strict=True):
        assert abs(rank - own_rank) <= 1 + 0.002 * own_rank
        assert abs(p - own) < 1e-3


def text_of(driver, selector):
    """Return the texts of what the selector finds, at one moment."""
    code = "return [...document.querySelectorAll(arguments[0])]"
    return driver.execute_script(f"{code}.map(e => e.textContent)", selector)


def said(driver, expected, seconds=40):
    """Wait until the message has the expected words; return it."""

    def found():
        (text,) = text_of(driver, "[role=status]")
        return text if re.search(expected, text) else None

    return wait_for(f"the message {expected}", found, seconds)


def press_again(driver):
    """Press the button that tries once more."""
    (button,) = elements(driver, ".llama-again")
    wait_for("the button", button.is_displayed, 20)
    button.click()


def offered(driver):
    """Return the models that are offered, once they are: key and words."""
    code = "return Object.fromEntries([...document.querySelectorAll("
    code += "'[data-model]')].map(it => [it.dataset.model, it.textContent]))"
    return wait_for("the offer", lambda: driver.execute_script(code), 20)


def take(driver, key):
    """Press the button that fetches a model."""
    found = f"document.querySelector('[data-model={key}]')"
    driver.execute_script(f"{found}.click()")


WEIGHTS = "part-00.gz", "model.safetensors"


@browser
def test_every_station_of_a_recorded_run(opened, server):
    """No weights are fetched for it."""
    opened.execute_script("sessionStorage.clear()")
    server.asked.clear()
    open_with(opened, f"{server.address}/explorer.html", "", fetch=False)
    for station in STATIONS:
        opened.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", station
        )
        assert elements(opened, ".llama-out *"), station
    elements(opened, ".llama-form .llama-chip")[2].click()
    said(opened, "5 tokens|attends most")
    assert not elements(opened, ".llama-error")
    assert not {*WEIGHTS} & {*server.asked}


@browser
def test_a_free_prompt_asks_for_a_model(opened, server, smollm2_file):
    """What the pocket knows is said before it answers; it then comes."""
    opened.execute_script("sessionStorage.clear()")
    server.asked.clear()
    open_with(opened, f"{server.address}/explorer.html", "", fetch=False)
    type_prompt(opened, "My cat sleeps")
    words = offered(opened)
    assert re.fullmatch(
        r"SmolLM2-135M-Instruct \(download \d\d MB, once\)", words["smollm2"]
    )
    assert words["pocket"] == "The pocket Llama (download 13 MB, once)"
    (offer,) = text_of(opened, ".llama-offer")
    assert "capitals, small stories, sums" in offer
    assert "The map still shows “The capital of France is”" in offer
    assert not {*WEIGHTS} & {*server.asked}
    take(opened, "pocket")
    wait_for("the pocket", lambda: opened.execute_script(READY), 30)
    said(opened, "attends most")
    assert setting(opened, "prompt") == "My cat sleeps"
    assert not offer_is_shown(opened)
    assert server.asked.count("model.safetensors") == 1
    assert "part-00.gz" not in server.asked


def offer_is_shown(driver):
    return elements(driver, ".llama-offer")[0].is_displayed()


@browser
def test_smollm2_comes_once_and_waits(opened, server, smollm2_file):
    """A bar, a pause; the browser keeps it, so that it comes at once."""
    opened.execute_script("sessionStorage.clear()")
    call(opened, "for (const k of await caches.keys()) await caches.delete(k)")
    open_with(opened, f"{server.address}/explorer.html", "", fetch=False)
    button(opened, "Next token").click()
    offered(opened)
    assert text_of(opened, ".llama-new") != [""]  # a token is there at once
    take(opened, "smollm2")
    wait_for("a part", lambda: press_offer(opened, "Pause"), 20)
    time.sleep(0.5)
    before = text_of(opened, ".llama-offer progress ~ span")
    time.sleep(1)
    assert text_of(opened, ".llama-offer progress ~ span") == before
    assert not opened.execute_script(READY)
    assert press_offer(opened, "Go on")
    wait_for("SmolLM2", lambda: opened.execute_script(READY), 120)
    parts = [name for name in server.asked if name.startswith("part-")]
    assert len(parts) == len({*parts}) > 3
    server.asked.clear()
    open_with(
        opened,
        f"{server.address}/explorer.html",
        "model=smollm2&prompt=My+cat",
        fetch=False,
    )
    wait_for("SmolLM2", lambda: opened.execute_script(READY), 120)
    assert not [n for n in server.asked if n.startswith("part-")]


def press_offer(driver, label):
    """Press the offer's button with this label; return whether it is there."""
    return driver.execute_script(
        "const all = [...document.querySelectorAll('.llama-offer button')];"
        "const found = all.find(it => it.textContent === arguments[0]);"
        "if (found?.checkVisibility()) found.click();"
        "return !!found?.checkVisibility()",
        label,
    )


@browser
def test_files_are_fetched_once(ready, server):
    files = "tokenizer.json", "params.json", "model.safetensors"
    server.asked.clear()
    for key in ("rope", "text", "logits"):
        press_tile(ready, key)
    type_prompt(ready, "Monday, Tuesday")
    said(ready, "next token: “,”")
    assert [server.asked.count(name) for name in files] == [0, 0, 0]


@browser
def test_a_metered_connection_is_spared(opened, server, smollm2_file):
    """Even the pocket waits for a click."""
    source = "Object.defineProperty(navigator, 'connection', "
    source += "{value: {saveData: true}, configurable: true})"
    add = "Page.addScriptToEvaluateOnNewDocument"
    added = opened.execute_cdp_cmd(add, {"source": source})
    call(opened, "for (const k of await caches.keys()) await caches.delete(k)")
    server.asked.clear()
    address = f"{server.address}/explorer.html"
    open_with(opened, address, "model=pocket", fetch=False)
    type_prompt(opened, "Monday, Tuesday")
    assert {*offered(opened)} == {"smollm2", "pocket"}
    assert "metered" in text_of(opened, ".llama-offer")[0]
    assert not {*WEIGHTS} & {*server.asked}
    remove = "Page.removeScriptToEvaluateOnNewDocument"
    opened.execute_cdp_cmd(remove, added)
    take(opened, "pocket")
    wait_for("the weights", lambda: opened.execute_script(READY), 30)


# -- by keyboard; what is kept ------------------------------------------------


def press_tile(driver, key):
    found = f"document.querySelector(\".llama-tile[data-tile='{key}']\")"
    driver.execute_script(f"{found}.click()")


def type_prompt(driver, text):
    """Set the prompt as if typed, without waiting for each key."""
    driver.execute_script(
        "const it = document.querySelector('.llama-form textarea');"
        "it.value = arguments[0];"
        "it.dispatchEvent(new Event('input', {bubbles: true}));",
        text,
    )


def setting(driver, name):
    return driver.execute_script(
        "return llama.explorers[0].settings[arguments[0]]", name
    )


def press(driver, *keys):
    driver.switch_to.active_element.send_keys(*keys)


def tab_to(driver, selector):
    """Press Tab until the element has the focus, visibly."""
    for _ in range(80):
        press(driver, Keys.TAB)
        outline = driver.execute_script(
            "const it = document.activeElement;"
            "if (!it.matches(arguments[0])) return null;"
            "const seen = it.type === 'radio' ? it.nextElementSibling : it;"
            "return getComputedStyle(seen).outlineStyle",
            selector,
        )
        if outline:
            assert outline == "solid", selector
            return
    raise AssertionError(f"Tab does not reach {selector}")


@browser
def test_everything_by_keyboard(ready):
    tab_to(ready, ".llama-tile")
    assert setting(ready, "station") == "attention"
    press(ready, Keys.ARROW_LEFT)
    said(ready, "pair 1 is rotated by")
    press(ready, Keys.ARROW_RIGHT)
    press(ready, Keys.ARROW_RIGHT)  # the focus stays on the map
    assert setting(ready, "station") == "values"
    tab_to(ready, "[name=layer]")
    press(ready, Keys.ARROW_LEFT)
    assert setting(ready, "layer") == 4
    press(ready, Keys.ARROW_LEFT)
    assert setting(ready, "layer") == 3
    tab_to(ready, "[data-setting=head]")
    press(ready, Keys.ARROW_RIGHT)
    assert setting(ready, "head") == 7
    tab_to(ready, "[data-setting=token]")
    press(ready, Keys.ARROW_LEFT)
    said(ready, "at “␣France” adds up")
    ready.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    press_tile(ready, "rope")
    tab_to(ready, "[name=shift]")
    press(ready, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert setting(ready, "shift") == 2  # the focus stays on the slider
    said(ready, "at position 6:")


@browser
def test_the_prompt_goes_from_page_to_page(ready, server):
    """By this tab's memory, and by the address alone."""
    type_prompt(ready, "Monday,")
    said(ready, "Monday|,")
    press_tile(ready, "rope")
    ready.execute_script("llama.explorers[0].set({layer: 2, pair: 4})")
    address = wait_for(
        "the address",
        lambda: "pair=4" in ready.current_url and ready.current_url,
        10,
    )
    assert "prompt=Monday%2C" in address and "layer=2" in address
    assert "model=pocket" in address
    ready.get(f"{server.address}/explorer.html")
    said(ready, "attends most to")  # each page begins with its own station
    press_tile(ready, "rope")
    said(ready, "pair 4 is rotated")
    assert setting(ready, "prompt") == "Monday,"
    ready.execute_script("sessionStorage.clear()")
    ready.get(address)
    said(ready, "pair 4 is rotated")
    assert setting(ready, "layer") == 2
    assert text_of(ready, ".llama-tokens") == []
    find = "return document.querySelector('.llama-notebook').href"
    link = ready.execute_script(find)
    assert "/04_rope.html?" in link and "prompt=Monday%2C" in link


@browser
@pytest.mark.parametrize(
    "query",
    [
        "layer=99&head=-3&pair=x&token=5000&station=nothing&side=left",
        "next=1.99999&shift=1e9&theta=-1&bars=&temperature=&seed=-1",
        "next=%3Cimg%3E&top_k=1.5&top_p=7&most=0&special=maybe",
        "station=constructor&side=toString&model=valueOf",
        "model=none&layer=-7&head=1e3&temperature=-0",
    ],
)
def test_an_address_that_is_wrong(ready, server, query):
    open_with(ready, f"{server.address}/explorer.html", query, fetch=False)
    for key in STATIONS:
        ready.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", key
        )
        assert elements(ready, ".llama-out *"), key
        assert not elements(ready, ".llama-error")


# -- the walk, and the text that grows ----------------------------------------


def button(driver, label):
    (found,) = [
        e
        for e in elements(driver, ".llama-form button")
        if e.text == label and e.is_displayed()
    ]
    return found


@browser
def test_a_storage_that_is_damaged(ready, server):
    for kept in ("null", "5", "[1]", "{", '{"layer": {}, "seed": []}'):
        ready.execute_script(
            "sessionStorage.setItem('llama-explorer', arguments[0])", kept
        )
        page = f"{server.address}/explorer.html"
        open_with(ready, page, "prompt=a", fetch=False)
        assert not elements(ready, ".llama-error"), kept


@browser
def test_a_line_end_stays_in_the_prompt(ready):
    """A prompt that was shared has it, and “Next token” keeps it."""
    address = ready.current_url.partition("?")[0]
    query = "model=pocket&prompt=Monday,%0ATuesday&temperature=0"
    open_with(ready, address, query)
    button(ready, "Next token").click()
    wait_for("the token", lambda: setting(ready, "next"), 10)
    assert setting(ready, "prompt") == "Monday,\nTuesday"


@browser
def test_step_by_step(ready, pocket):
    """Each step lights a tile; at the end the token is in the text."""
    steps = []
    ready.execute_script("llama.explorers[0].set({temperature: 0})")
    for _ in range(40):
        label = "Next step" if steps else "Step by step"
        button(ready, label).click()
        wait_for("a step", lambda: text_of(ready, "[role=status]"), 5)
        (text,) = text_of(ready, "[role=status]")
        lit = text_of(ready, ".llama-now .llama-name")
        if not ready.execute_script("return !!llama.explorers[0].walk"):
            break
        steps.append((text, lit))
    assert len(steps) == 20
    assert setting(ready, "layer") == -1  # what the walk changed is back
    assert steps[0][0].startswith("1 of 20. The text is cut into 5 tokens")
    assert steps[0][1] == ["tokens"] and steps[5][1] == ["attention"]
    assert len(steps[12][1]) == 9  # a whole block
    assert "“␣Paris”" in steps[-1][0]
    wait_for("the token", lambda: setting(ready, "next"), 10)
    assert text_of(ready, ".llama-text") == [PROMPT + " Paris"]
    assert text_of(ready, ".llama-tile[data-tile=tokens] text")[-2] == "␣Paris"
    button(ready, "Reset").click()
    assert setting(ready, "next") == ""


@browser
def test_next_token_appends_at_once(ready):
    """Each click is a token; no model, no walk is waited for."""
    ready.execute_script("llama.explorers[0].set({temperature: 0})")
    for n in range(1, 4):
        button(ready, "Next token").click()
        said(ready, "was appended: the most likely one")
        wait_for(
            "the numbers",
            lambda n=n: len(ready.execute_script(IDS)) == 6 + n,
            10,
        )
    assert text_of(ready, ".llama-text")[0].startswith(f"{PROMPT} Paris.")


IDS = "return llama.explorers[0].ids"


@browser
def test_a_walk_waits_and_ends(ready):
    ready.execute_script("llama.explorers[0].set({token: 1})")
    button(ready, "Step by step").click()
    said(ready, "1 of 20")
    button(ready, "Next step").click()
    said(ready, "2 of 20")
    assert setting(ready, "token") == -1  # it is the last one's way
    ready.execute_script("llama.explorers[0].set({head: 3})")
    said(ready, "The walk waits at step 2")
    button(ready, "Next step").click()  # a look aside does not end it
    said(ready, "3 of 20")
    type_prompt(ready, "")  # another prompt ends it, even an empty one
    said(ready, "The prompt is empty")
    type_prompt(ready, "Monday,")
    said(ready, "attends most to")
    assert not elements(ready, ".llama-now, .llama-ahead")
    button(ready, "Step by step").click()
    said(ready, "1 of 20")
    (end,) = [
        each
        for each in elements(ready, ".llama-message button")
        if each.text == "End the walk"
    ]
    end.click()
    said(ready, "attends most to")
    button(ready, "Step by step")


def write_on(driver, **settings):
    driver.execute_script(
        "llama.explorers[0].set({station: 'text', next: '', ...arguments[0]})",
        settings,
    )
    button(driver, "Generate").click()


@browser
def test_a_text_grows(ready, pocket):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    new = list(llamalib.generate(pocket, ids, max_new_tokens=120))
    write_on(ready, temperature=0)
    said(ready, r"Generation ended: the model drew a stop token.*\d+ a second")
    text = PROMPT + pocket.tokenizer.decode(new)
    assert text_of(ready, ".llama-text") == [text]
    assert [int(i) for i in setting(ready, "next").split(".")] == new
    write_on(ready, temperature=0, most=7)
    said(ready, "the limit of 7 new tokens")


@browser
def test_tokens_one_by_one_are_the_text(ready):
    """The same seed draws the same tokens, by the walk and in one go."""
    settings = dict(prompt=SECOND, temperature=1, seed=5, most=4)
    write_on(ready, **settings)
    said(ready, "the limit of 4 new tokens")
    expected = setting(ready, "next")
    assert expected.count(".") == 3
    ready.execute_script("llama.explorers[0].set({next: ''})")
    for n in range(1, 5):
        button(ready, "Next token").click()
        wait_for(
            "a token",
            lambda n=n: len(setting(ready, "next").split(".")) == n,
            10,
        )
    assert setting(ready, "next") == expected


@browser
def test_a_text_is_stopped(ready):
    call(ready, "llama.explorers[0].tokenizer.stop_tokens.clear()")
    write_on(ready, prompt=SECOND, most=500)
    wait_for("text", lambda: len(text_of(ready, ".llama-new")[0]) > 40, 60)
    button(ready, "Stop").click()
    last = said(ready, "you stopped it")
    n = int(re.search(r"(\d+) new tokens", last)[1])
    assert 0 < n < 500
    before = text_of(ready, ".llama-text")
    time.sleep(0.5)
    assert text_of(ready, ".llama-text") == before


@browser
def test_another_prompt_ends_a_text_that_grows(ready):
    """The old text's tokens are not appended to the new prompt."""
    call(ready, "llama.explorers[0].tokenizer.stop_tokens.clear()")
    write_on(ready, prompt=SECOND, most=500)
    wait_for("text", lambda: len(text_of(ready, ".llama-new")[0]) > 40, 60)
    type_prompt(ready, "Monday,")
    button_is_back = "return llama.explorers[0].form.write.textContent"
    wait_for(
        "the end",
        lambda: ready.execute_script(button_is_back) == "Generate",
        20,
    )
    time.sleep(1)
    assert setting(ready, "prompt") == "Monday,"
    assert setting(ready, "next") == ""
    assert "begin_of_text" not in text_of(ready, "[data-tile=text]")[0]
    labels = text_of(ready, ".llama-tile[data-tile=tokens] text")
    assert labels[::2][-3:] == ["M", "onday", ","]


@browser
def test_samples_are_counted(ready):
    """What is cut off is never drawn; a seed draws the same again."""
    ready.execute_script(
        "llama.explorers[0].set({station: 'sample', prompt: arguments[0]})",
        SECOND,
    )
    said(ready, "Drawn so far: 0")
    found = []
    for seed in (5, 6, 5):
        ready.execute_script(
            "llama.explorers[0].set({seed: arguments[0]})", seed
        )
        for n in (20, 40):
            elements(ready, ".llama-controls button")[0].click()
            said(ready, f"far: {n}, with seed {seed}")
        (table,) = call(ready, SHOW + "return tables()")
        assert sum(int(row[3]) for row in table) == 40
        assert all(r[3] == "0" for r in table if r[2] == "cut off")
        found.append(table)
    assert found[0] == found[2] != found[1]


# -- errors, and every reader --------------------------------------------------


@browser
def test_texts_that_do_not_fit(ready):
    for text, expected in (
        ("", "The prompt is empty. Type a word"),
        ("a" * 3001, "3001 characters; this page takes at most 3000"),
        ("word " * 600, r"\d+ tokens; .*at most 512. Shorten it by \d+"),
        (PROMPT, "“␣is” attends most to"),
        ("Once upon a time " * 12, "attends most to"),
    ):
        type_prompt(ready, text)
        said(ready, expected)
    chosen = "[data-setting=token]"
    wait_for("40 tokens", lambda: len(elements(ready, chosen)) == 40, 20)
    tile = text_of(ready, "[data-tile=tokens]")[0]
    assert re.search(r"\+\d+", tile), tile
    (table,) = call(ready, SHOW + "return tables()")
    assert re.fullmatch(r"⋯ \d+ tokens not shown", table[1][0])
    total = sum(number(row[2]) for row in table)
    assert math.isclose(total, 1, abs_tol=0.04) and len(table) == 41
    sizes = " ".join(text_of(ready, ".llama-about"))
    assert "6,556,928 parameters" in sizes
    assert "1,235,814,400 parameters" in sizes
    assert not elements(ready, ".llama-error")


@browser
@pytest.mark.parametrize(
    "name, status, expected",
    [
        ("pocket/model.safetensors", 404, "answered with status 404.*Check"),
        ("pocket/tokenizer.json", 500, "answered with status 500"),
        ("pocket/model.safetensors", 200, "is damaged"),
        ("pocket/params.json", 200, "is damaged"),
        ("pocket/tokenizer.json", 200, "is damaged"),
        ("../runs/pocket-0.gz", 200, "is damaged"),
    ],
)
def test_a_second_use_after_an_error_works(
    opened, server, page_folder, name, status, expected
):
    file = page_folder / "_static" / "models" / name
    whole, name = file.read_bytes(), file.name
    half = whole[: len(whole) // 2]
    call(opened, "for (const k of await caches.keys()) await caches.delete(k)")
    server.broken[name] = status, half if status == 200 else b"none"
    server.errors += ["Error"] * (status == 200)  # the cause
    opened.execute_script("sessionStorage.clear()")
    opened.get(f"{server.address}/explorer.html?model=pocket")
    if name == "model.safetensors":
        wait_for("numbers", lambda: opened.execute_script(SHOWN), 20)
        opened.execute_script(FETCH)
    said(opened, f"{name} {'.*' * (status != 200)}{expected}")
    server.broken.clear()
    press_again(opened)
    said(opened, "attends most to")
    assert not elements(opened, ".llama-error")


SMALL = """
const small = [];
for (const it of document.querySelectorAll(
    ".llama :is(button, input, select, textarea)")) {
  if (!it.checkVisibility()) continue;
  if (it.closest(".llama-maps")) continue; // a picture each, and many
  const box = (it.matches("[type=checkbox], .llama-models [type=radio]") ? it.closest("label") : it)
    .getBoundingClientRect();
  if (box.width < 40 || box.height < 40)
    small.push([it.outerHTML.slice(0, 80), box.width, box.height]);
}
return [small, document.documentElement.scrollWidth, innerWidth];
"""


@browser
@pytest.mark.parametrize("width", [390, 1000, 1280, 1440])
def test_every_station_fits(ready, server, width):
    """Nothing is too small for a finger, nothing wider than the window."""
    show(ready, f"{server.address}/explorer.html?model=pocket", width)
    wait_for("numbers", lambda: ready.execute_script(SHOWN), 30)
    ready.execute_script(FETCH)
    wait_for("the weights", lambda: ready.execute_script(READY), 30)
    # a long word does not widen the page either
    type_prompt(ready, "Llama" * 20 + " 🦙 " + PROMPT)
    said(ready, "“␣is”")
    for key in STATIONS:
        ready.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", key
        )
        small, wide, screen = ready.execute_script(SMALL)
        assert wide <= screen == width, key
        # the band's tiles may be narrow: the arrow keys move on it, too
        small = [each for each in small if "llama-tile" not in each[0]]
        assert small == [], key
    tops = ready.execute_script(TOPS)
    assert (max(tops) - min(tops) < 40) == (width >= 1000)  # one band


TOPS = """
return [...document.querySelectorAll(
  ".llama-map > *, .llama-column > :first-child, .llama-block > button")]
  .map(it => it.getBoundingClientRect().top);
"""


@browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_contrast(ready, server, theme):
    show(ready, f"{server.address}/explorer.html?model=pocket", theme=theme)
    wait_for("numbers", lambda: ready.execute_script(SHOWN), 30)
    ready.execute_script(FETCH)
    wait_for("the weights", lambda: ready.execute_script(READY), 30)
    for key in STATIONS:
        ready.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", key
        )
        assert ready.execute_script(FAINT, ".llama *") == [], key
    type_prompt(ready, "")
    said(ready, "empty")
    assert ready.execute_script(FAINT, ".llama *") == []


@browser
def test_names_for_screen_readers(ready):
    controls = "button, input, select, textarea, svg[role=img], fieldset"
    controls += ", table"
    for key in STATIONS:
        ready.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", key
        )
        found = elements(ready, f".llama :is({controls})")
        assert len(found) > 30
        nameless = [e for e in found if not e.accessible_name.strip()]
        nameless = [e for e in nameless if e.is_displayed()]
        assert [e.get_attribute("outerHTML")[:90] for e in nameless] == []
    (status,) = elements(ready, ".llama [role=status]")
    assert status.aria_role == "status"  # a polite live region
    tiles = elements(ready, ".llama-tile")
    assert {e.aria_role for e in tiles} == {"tab"} and len(tiles) == 16


@browser
def test_texts_are_never_markup(ready):
    text = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    type_prompt(ready, text)
    said(ready, "attends most to")
    for key in STATIONS:
        ready.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", key
        )
        assert not elements(ready, ".llama img, .llama script")
    (whole,) = text_of(ready, ".llama-whole") or [text]
    assert text in whole


@browser
def test_special_tokens_and_bytes(ready, pocket):
    text = "Hi <|eot_id|> é 🦙 <b>x</b>"
    ready.execute_script(
        "llama.explorers[0].set({station: 'tokens', special: true,"
        " prompt: arguments[0]})",
        text,
    )
    t = pocket.tokenizer
    ids = t.encode(text, bos=True, eos=False, allowed_special="all")
    said(ready, f" {len(ids)} tokens")
    found = elements(ready, ".llama-tokens li")
    boxes = [e.text.split("\n") for e in found]
    assert [int(box[1]) for box in boxes] == ids
    for i, (label, _, code) in zip(ids, boxes):
        if i in t.special_tokens.values():
            assert code == "special" and label.startswith("<|")
        else:
            assert bytes.fromhex(code) == t.decode_bytes([i])
