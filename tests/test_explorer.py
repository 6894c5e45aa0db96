"""The explorer, in headless Chromium: what its stations show, and how.

Run by `make test-browser`; needs chromium and chromedriver on the PATH.
"""

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
from tools import explorer

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

STATIONS = [each["key"] for each in explorer.TEXTS["station"]]
PROMPT = explorer.EXAMPLES[0]
PROMPTS = [
    *("The capital of France is", "Once upon a time there was a", "Monday,"),
    *("12 + 7 =", "The language of Brazil is", "\n\n", "🦙", "1, 2, 3,"),
    *('"Good," said', "What is the capital of Peru?"),
]

# -- without a browser -------------------------------------------------------


def test_code_is_the_librarys():
    """Each line that a station shows stands in the file that it names."""
    for each in explorer.TEXTS["station"]:
        file, name, *ends = each["code"]
        text = (explorer.ROOT / "llamalib" / file).read_text()
        code = explorer.code_lines(file, name, *ends)
        assert 1 <= len(code.splitlines()) <= 8, each["key"]
        for line in code.splitlines():
            assert line.strip() in text
    with pytest.raises(ValueError, match="no line begins with 'x = 1'"):
        explorer.code_lines("model.py", "rms_norm", "x = 1", "return")


def test_stations_follow_the_series():
    found = explorer.stations()
    files = [each["file"] for each in found["stations"]]
    assert len({*files}) == 10  # each notebook of the main road
    assert found["large"]["F"] == 8192 and found["large"]["hd"] == 64


def test_activations_are_those_of_record(pocket):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    found = explorer.activations(pocket, ids)
    seen = llamalib.record(pocket, torch.tensor(ids))
    for i in range(pocket.config.n_layers):
        name = f"layers.{i}"
        x, added = seen[f"{name}.in"], seen[f"{name}.attention.out"]
        assert torch.equal(found[f"x.{i}"], x)
        assert torch.allclose(found[f"h.{i}"], x + added, atol=1e-4)
        for norm, part in (
            ("attention", "attention"),
            ("ffn", "feed_forward"),
        ):
            entered = seen[f"{name}.{part}.in"]
            assert torch.equal(found[f"{norm}_norm.{i}"], entered)
        assert torch.equal(found[f"x.{i + 1}"], seen[f"{name}.out"])
    probs = pocket(torch.tensor(ids)).softmax(-1).topk(3)
    assert torch.equal(found["lens.ids"][-1], probs.indices.int())


def test_the_page_in_a_notebook_needs_nothing_else(tmp_path, monkeypatch):
    """Its file has the scripts and the weights; the output only a frame."""
    monkeypatch.chdir(tmp_path)
    shown = explorer.show()
    page = (tmp_path / "explorer.html").read_text(encoding="utf-8")
    assert not re.findall(
        r"""(?:src|href)=["'](?!#)""", page.split("<script>")[0]
    )
    files = page[page.index("window.llama_files") :]
    for name in ("model.safetensors", "tokenizer.model", "example-2"):
        assert f'"{name}' in files
    assert shown._repr_html_().startswith('<iframe src="explorer.html"')
    assert "explorer.html" in (explorer.ROOT / ".gitignore").read_text()


# -- what the stations show, against llamalib --------------------------------

browser = pytest.mark.browser
READY = "return !!window.llama?.explorers?.[0]?.trace?.llama"


@pytest.fixture
def ready(opened):
    """Return the driver with the page, once the weights are there."""
    opened.execute_script("sessionStorage.clear()")
    opened.get(opened.current_url.partition("?")[0])
    wait_for("the weights", lambda: opened.execute_script(READY), 30)
    return opened


SHOW = """
const e = window.llama.explorers[0];
const tables = () => [...e.panel.querySelectorAll(".llama-out table")].map(
  table => [...table.tBodies[0].rows].map(
    row => [...row.cells].map(cell => cell.textContent)));
"""
SET = (
    SHOW + "e.field.value = given[0].prompt ?? e.settings.prompt;"
    "Object.assign(e.settings, {next: '', token: -1}, given[0]);"
    "await e.run(); return e.trace.ids;"
)
# the tables of a station for each of many settings
TABLES = SHOW + (
    "return given[0].map(settings => { Object.assign(e.settings, settings);"
    " e.draw_station(); return tables(); });"
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
    tolerance = 0.51 * 10**-digits + 1e-5 * size + 1e-4
    assert math.isclose(shown, float(expected), abs_tol=tolerance)


def rms(x):
    return x.pow(2).mean().sqrt()


class Expected:
    """What PyTorch computes for one prompt."""

    def __init__(self, llama, ids):
        self.llama, self.ids, self.c = llama, ids, llama.config
        self.tokens = torch.tensor(ids)
        self.seen = explorer.activations(llama, ids)
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
def expected(pocket):
    found = {}
    for text in PROMPTS:
        ids = pocket.tokenizer.encode(text, bos=True, eos=False)
        with torch.no_grad():
            found[text] = Expected(pocket, ids)
    return found


def each_head(station, x, **more):
    return [
        dict(station=station, layer=layer, head=head, **more)
        for layer in range(x.c.n_layers)
        for head in range(x.c.n_heads)
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
def test_numbers_of_each_head(ready, expected, station):
    """Ten prompts, every layer and every head."""
    check, more = CHECKS[station]
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
def test_numbers_of_each_layer(ready, expected, station):
    check, sides = LAYER_CHECKS[station]
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
def test_numbers_outside_the_blocks(ready, expected, pocket):
    """Embedding, stream, logits, sampling: ten prompts, each position."""
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
    for layer, row in enumerate(tables[0]):
        own = x.at("x", layer, t).norm()
        agree(number(row[1]), own, size=10 * own)
        shown = [number(p) for p in re.findall(r" ([<\d.]+)(?:, |$)", row[2])]
        best = x.seen["lens.probs"][layer, t]
        for value, p in zip(shown[-1:], best[2:], strict=True):
            agree(value, p)


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


# -- before the weights are there --------------------------------------------


@browser
def test_an_example_is_what_the_model_computes(ready):
    """The numbers that come with the page are those of the weights."""
    found = call(
        ready,
        "const m = await llama.load(), found = [];"
        "for (let n = 0; n < 3; n++) {"
        "  const a = await llama.load_example(n), b = m.trace();"
        "  await b.follow(a.ids);"
        "  let worst = 0;"
        "  for (const [name, layers] of Object.entries(b.rows))"
        "    layers.forEach((rows, l) => rows.forEach((row, t) => row.forEach("
        "      (v, i) => { worst = Math.max(worst, Math.abs(v -"
        "        a.rows[name][l][t][i]) / (1 + Math.abs(v))); })));"
        "  const [p, q] = [a, b].map(it => it.logits(it.ids.length - 1));"
        "  p.forEach((v, i) => { worst = Math.max(worst, Math.abs(v - q[i])); });"
        "  found.push([a.ids.length, worst]);"
        "} return found;",
    )
    lengths, worst = zip(*found)
    assert lengths == (6, 8, 4) and max(worst) < 1e-3, found


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
    """Press the button that loads the weights; return its words."""
    (button,) = elements(driver, ".llama-again")
    wait_for("the button", button.is_displayed, 20)
    words = button.text
    button.click()
    return words


@browser
def test_numbers_come_before_the_weights(opened, server):
    """Without the weights the first prompt stands, at every station."""
    server.broken["model.safetensors"] = 404, b"none"
    opened.execute_script("sessionStorage.clear()")
    opened.get(f"{server.address}/explorer.html")
    said(opened, "model.safetensors could not be fetched.*status 404")
    for station in STATIONS:
        opened.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", station
        )
        assert elements(opened, ".llama-out *"), station
    chips = elements(opened, ".llama-chip")  # the first has the settings
    chips[2].click()
    said(opened, "9 tokens|8 tokens")
    server.broken.clear()
    assert press_again(opened) == "Try again"
    wait_for("the weights", lambda: opened.execute_script(READY), 30)
    assert not elements(opened, ".llama-error")


@browser
def test_files_are_fetched_once(ready, server):
    files = "tokenizer.model", "params.json", "model.safetensors"
    for key in ("rope", "text", "logits"):
        press_tile(ready, key)
    type_prompt(ready, "Monday, Tuesday")
    said(ready, "next token: “,”")
    assert max(server.asked.count(name) for name in files) == 2  # one a visit


@browser
def test_a_wish_to_save_data_is_followed(opened, server):
    """Then a button loads the weights; until then, no 13 MB."""
    source = "Object.defineProperty(navigator, 'connection', "
    source += "{value: {saveData: true}, configurable: true})"
    add = "Page.addScriptToEvaluateOnNewDocument"
    added = opened.execute_cdp_cmd(add, {"source": source})
    server.asked.clear()
    opened.get(f"{server.address}/explorer.html")
    said(opened, "attends most to")
    time.sleep(1)
    assert "model.safetensors" not in server.asked
    remove = "Page.removeScriptToEvaluateOnNewDocument"
    opened.execute_cdp_cmd(remove, added)
    assert press_again(opened) == "Load the model (13 MB)"
    wait_for("the weights", lambda: opened.execute_script(READY), 30)


# -- by keyboard; what is kept ------------------------------------------------


def press_tile(driver, key):
    found = f"document.querySelector(\".llama-tile[data-tile='{key}']\")"
    driver.execute_script(f"{found}.click()")


def type_prompt(driver, text):
    """Set the prompt as if typed, without waiting for each key."""
    driver.execute_script(
        "const it = document.querySelector('.llama-form input');"
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
    tab_to(ready, "[data-setting=layer]")
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
    ],
)
def test_an_address_that_is_wrong(ready, server, query):
    ready.get(f"{server.address}/explorer.html?{query}")
    wait_for("the weights", lambda: ready.execute_script(READY), 30)
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
def test_next_token_step_by_step(ready, pocket):
    """Each step lights a tile; at the end the token is in the text."""
    steps = []
    for _ in range(40):
        button(ready, "Step").click()
        wait_for("a step", lambda: text_of(ready, "[role=status]"), 5)
        (text,) = text_of(ready, "[role=status]")
        lit = text_of(ready, ".llama-now .llama-name")
        if not ready.execute_script("return !!llama.explorers[0].walk"):
            break
        steps.append((text, lit))
    assert len(steps) == 20
    assert setting(ready, "layer") == 5  # what the walk changed is back
    assert steps[0][0].startswith("1 of 20. The text becomes 5 tokens")
    assert steps[0][1] == ["tokens"] and steps[5][1] == ["attention"]
    assert len(steps[12][1]) == 9  # a whole block
    assert "“␣Paris”" in steps[-1][0]
    wait_for("the token", lambda: setting(ready, "next"), 10)
    assert text_of(ready, ".llama-text") == [PROMPT + " Paris"]
    assert text_of(ready, ".llama-tile[data-tile=tokens] text")[-2] == "␣Paris"
    button(ready, "Reset").click()
    assert setting(ready, "next") == ""


@browser
def test_the_walk_plays_stops_and_goes_on(ready):
    ready.execute_script("llama.explorers[0].set({token: 1})")
    button(ready, "Next token").click()
    said(ready, "2 of 20")
    assert setting(ready, "token") == -1  # it is the last one's way
    button(ready, "Stop").click()
    assert "Next step" in text_of(ready, ".llama-message button")
    (text,) = text_of(ready, "[role=status]")
    time.sleep(2.5)
    assert text_of(ready, "[role=status]") == [text]
    button(ready, "Continue").click()
    said(ready, "4 of 20")
    ready.execute_script("llama.explorers[0].set({head: 3})")
    button(ready, "Continue").click()  # a look aside does not end it
    said(ready, "5 of 20")
    type_prompt(ready, "")  # another prompt ends it, even an empty one
    said(ready, "The prompt is empty")
    assert not elements(ready, ".llama-now, .llama-ahead")
    type_prompt(ready, "Monday,")
    said(ready, "attends most to")
    assert not elements(ready, ".llama-now, .llama-ahead")
    button(ready, "Next token")


@browser
def test_with_reduced_motion_it_steps(ready):
    media = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    ready.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    button(ready, "Next token").click()
    said(ready, "1 of 20")
    time.sleep(2.5)
    said(ready, "1 of 20")
    button(ready, "Continue").click()
    said(ready, "2 of 20")


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
    settings = dict(prompt=explorer.EXAMPLES[1], temperature=1, seed=5, most=4)
    write_on(ready, **settings)
    said(ready, "the limit of 4 new tokens")
    expected = setting(ready, "next")
    assert expected.count(".") == 3
    ready.execute_script("llama.explorers[0].set({next: ''})")
    for n in range(1, 5):
        walk = "const e = llama.explorers[0]; if (await e.is_ready())"
        walk += "{ e.walk = e.begin_walk(); e.arrive(); }"
        call(ready, walk)
        wait_for(
            "a token",
            lambda n=n: len(setting(ready, "next").split(".")) == n,
            10,
        )
    assert setting(ready, "next") == expected


@browser
def test_a_text_is_stopped(ready):
    call(ready, "(await llama.load_tokenizer()).stop_tokens.clear()")
    write_on(ready, prompt=explorer.EXAMPLES[1], most=500)
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
    call(ready, "(await llama.load_tokenizer()).stop_tokens.clear()")
    write_on(ready, prompt=explorer.EXAMPLES[1], most=500)
    wait_for("text", lambda: len(text_of(ready, ".llama-new")[0]) > 40, 60)
    type_prompt(ready, "Monday,")
    button_is_back = "return llama.explorers[0].write.textContent"
    wait_for(
        "the end",
        lambda: ready.execute_script(button_is_back) == "Generate",
        20,
    )
    time.sleep(1)
    assert setting(ready, "prompt") == "Monday,"
    assert setting(ready, "next") == ""
    labels = text_of(ready, ".llama-tile[data-tile=tokens] text")
    assert labels[::2][-3:] == ["M", "onday", ","]


@browser
def test_samples_are_counted(ready):
    """What is cut off is never drawn; a seed draws the same again."""
    ready.execute_script(
        "llama.explorers[0].set({station: 'sample', prompt: arguments[0]})",
        explorer.EXAMPLES[1],
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
        ("a" * 10_001, "10001 characters; this page takes at most 10000"),
        ("word " * 600, r"\d+ tokens; .*at most 512. Shorten it by \d+"),
        (PROMPT, "“␣is” attends most to"),
        ("Once upon a time " * 12, "attends most to"),
    ):
        type_prompt(ready, text)
        said(ready, expected)
    chosen = "[data-setting=token]"
    wait_for("40 tokens", lambda: len(elements(ready, chosen)) == 40, 20)
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
        ("model.safetensors", 404, "answered with status 404.*Check"),
        ("tokenizer.model", 500, "answered with status 500"),
        ("model.safetensors", 200, "is damaged"),
        ("params.json", 200, "is damaged"),
        ("tokenizer.model", 200, "is damaged"),
        ("example-0.safetensors", 200, "is damaged"),
    ],
)
def test_a_second_use_after_an_error_works(
    opened, server, page_folder, name, status, expected
):
    whole = (page_folder / "_static" / "pocket" / name).read_bytes()
    half = whole[: len(whole) // 2]
    server.broken[name] = status, half if status == 200 else b"none"
    server.errors += ["Error"] * (status == 200)  # the cause
    opened.execute_script("sessionStorage.clear()")
    opened.get(f"{server.address}/explorer.html")
    if name.startswith("example"):  # the weights compute the same
        wait_for("the weights", lambda: opened.execute_script(READY), 30)
    else:
        said(opened, f"{name} {'.*' * (status != 200)}{expected}")
        server.broken.clear()
        (button,) = elements(opened, ".llama-again")

        def is_over():  # the page itself tries once more
            return button.is_displayed() or opened.execute_script(READY)

        wait_for("a button", is_over, 20)
        if button.is_displayed():
            button.click()
        wait_for("the weights", lambda: opened.execute_script(READY), 30)
    said(opened, "attends most to")
    assert not elements(opened, ".llama-error")


SMALL = """
const small = [];
for (const it of document.querySelectorAll(
    ".llama :is(button, input, select)")) {
  if (!it.checkVisibility()) continue;
  const box = (it.matches("[type=checkbox]") ? it.closest("label") : it)
    .getBoundingClientRect();
  if (box.width < 40 || box.height < 40)
    small.push([it.outerHTML.slice(0, 80), box.width, box.height]);
}
return [small, document.documentElement.scrollWidth, innerWidth];
"""


@browser
@pytest.mark.parametrize("width", [390, 1440])
def test_every_station_fits(ready, server, width):
    """Nothing is too small for a finger, nothing wider than the window."""
    show(ready, f"{server.address}/explorer.html", width)
    wait_for("the weights", lambda: ready.execute_script(READY), 30)
    # a long word does not widen the page either
    type_prompt(ready, "Llama" * 20 + " 🦙 " + PROMPT)
    said(ready, "“␣is”")
    for key in STATIONS:
        ready.execute_script(
            "llama.explorers[0].set({station: arguments[0]})", key
        )
        small, wide, screen = ready.execute_script(SMALL)
        assert small == [] and wide <= screen == width, key


@browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_contrast(ready, server, theme):
    show(ready, f"{server.address}/explorer.html", theme=theme)
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
    controls = "button, input, select, svg[role=img], fieldset, table"
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
