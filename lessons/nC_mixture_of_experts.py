"""Pictures, widgets and checks of notebook C."""

import json
from functools import lru_cache, partial
from operator import add
from statistics import mean

import ipywidgets as ipw
import torch
from torch.nn.functional import one_hot, silu

from llamalib.load import ROOT
from llamalib.probe import continuation, record, replaced

from .charts import boxes, finish, page, text_flow, write
from .judge import alike, draws, exercise, vary
from .needs import is_large
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .texts import load_corpus
from .theme import GROUPS, array, colour, panels, plain

# -- a part of a network at each token --


def some_groups(n: int, k: int, score, times=1.0):
    """Return a network's forward in which k of n groups of neurons act.

    score: from the groups' results (..., n, D) to numbers (..., n); the
    groups with the largest act. times: what their sum is multiplied by.
    """

    def forward(self, x):
        inner = silu(self.w1(x)) * self.w3(x)  # (..., F)
        groups = inner.unflatten(-1, (n, -1))  # (..., n, F/n)
        columns = self.w2.weight.unflatten(1, (n, -1))  # (D, n, F/n)
        outs = torch.einsum("...nf,dnf->...nd", groups, columns)
        chosen = score(outs).topk(k, dim=-1).indices  # (..., k)
        is_in = one_hot(chosen, n).sum(-2).to(x.dtype)  # (..., n)
        return times * (is_in[..., None] * outs).sum(-2)  # (..., D)

    return forward


def asked_countries(llama) -> list[dict]:
    """Return the countries that a model is asked about."""
    countries = load_corpus().COUNTRIES
    if is_large(llama):
        return [each for each in countries if each["country"][0] == "F"]
    return countries


@torch.inference_mode()
def known_capitals(llama, countries) -> int:
    """Return how many capitals a model knows."""
    rows, right = {}, 0  # of equal lengths: they run together
    for each in countries:
        asked = f"The capital of {each['country']} is"
        ids = llama.tokenizer.encode(asked, bos=True, eos=False)
        answer = " " + each["capital"]
        answer = llama.tokenizer.encode(answer, bos=False, eos=False)
        rows.setdefault((len(ids), len(answer)), []).append(ids + answer)
    for (n, _), alike_long in rows.items():
        ids = torch.tensor(alike_long)  # (B, T)
        found = llama(ids[:, :-1])[:, n - 1 :].argmax(-1)
        right += int((found == ids[:, n:]).all(-1).sum())
    return right


# With so few groups a sum is too small. Of 1, 1.5, 2 and 4 these factors give
# the pocket the most capitals.
TIMES = {"longest": 1.5, "random": 4, "guessed": 1.5, "same": 2}


def print_capitals(llama, n: int, k: int) -> None:
    """Print how many capitals a model knows with k of n groups of neurons."""
    countries = asked_countries(llama)
    rng = torch.Generator().manual_seed(0)

    def at_random(outs):
        return torch.rand(outs.shape[:-1], generator=rng)

    length = partial(torch.linalg.vector_norm, dim=-1)
    ways = {
        f"all {n} groups": (n, length, 1),
        f"the {k} longest": (k, length, TIMES["longest"]),
        f"{k} at random": (k, at_random, TIMES["random"]),
    }
    for name, way in ways.items():
        with replaced(**{"FeedForward.forward": some_groups(n, *way)}):
            right = known_capitals(llama, countries)
            said = continuation(llama, "The capital of France is", 1)
        print(f"{name:13} {right:3} of {len(countries)}  {said!r}")


@torch.inference_mode()
def fit_lengths(llama, rows, n: int) -> dict:
    """Return for each network a matrix (D, n), and its groups' lengths (n,).

    The lengths of what n groups of neurons compute are means over the tokens
    of rows (B, T). The matrix is fitted by least squares: from what the
    network reads at a token it guesses these lengths.
    """
    names = [f"layers.{i}.feed_forward.in" for i in range(len(llama.layers))]
    seen = {name: [] for name in names}
    for part in rows.split(4):
        found = record(llama, part)
        for name in names:
            seen[name].append(found[name].flatten(0, 1))
    fits, lengths = {}, []

    def note(outs):  # (tokens, n, D)
        lengths.append(torch.linalg.vector_norm(outs, dim=-1))
        return lengths[-1]

    for name, block in zip(names, llama.layers, strict=True):
        u, network = torch.cat(seen[name]), block.feed_forward
        some_groups(n, n, note)(network, u)
        matrix = torch.linalg.lstsq(u, lengths[-1]).solution
        fits[network] = matrix, lengths[-1].mean(0)
    return fits


def print_guessed(llama, rows, n: int, k: int) -> None:
    """Print how many capitals a model knows if groups are not looked up.

    Least squares choose them at each token, or each network has the same
    groups at all tokens, those that are longest on average.
    rows: (B, T), the texts that the choice is fitted to.
    """
    fits, countries = fit_lengths(llama, rows, n), asked_countries(llama)

    def guessed(network, x):
        return x @ fits[network][0]  # (..., n)

    def same(network, x):
        return fits[network][1].expand(*x.shape[:-1], n)

    ways = {
        f"{k} by least squares": (guessed, TIMES["guessed"]),
        f"the same {k}": (same, TIMES["same"]),
    }
    for name, (score, times) in ways.items():

        def forward(self, x, score=score, times=times):
            some = some_groups(n, k, lambda outs: score(self, x), times)
            return some(self, x)

        with replaced(**{"FeedForward.forward": forward}):
            right = known_capitals(llama, countries)
        print(f"{name:18} {right:3} of {len(countries)}")


# -- the recorded runs --


def runs_of(student: str) -> dict[float, list[dict]]:
    """Return a student's runs of data/experts.json, by learning rate.

    data/recipe/experts.py wrote the file.
    """
    text = (ROOT / "data" / "experts.json").read_text(encoding="utf-8")
    found = {}
    for run in json.loads(text)["runs"]:
        if run["student"] == student:
            found.setdefault(run["rate"], []).append(run)
    return dict(sorted(found.items()))


def errors(runs) -> list[float]:
    """Return the errors of some runs."""
    return [run["error"] for run in runs]


def idle(run) -> int:
    """Return how many experts get less than 1 % of the choices."""
    return sum(share < 0.01 for share in run["shares"])


def print_students() -> None:
    """Print each student's errors at its best rate, and capitals."""
    print(f"{'':15}      error in the middle  capitals with students")
    print(
        f"{'student':15} rate  block, 1,000 steps   in every block, 200 steps"
    )
    for name in ("mixture", "fixed router", "narrow network"):
        by_rate = {rate: errors(runs) for rate, runs in runs_of(name).items()}
        rate, found = min(by_rate.items(), key=lambda pair: mean(pair[1]))
        (everywhere,) = runs_of(f"{name} in every block").values()
        known = " and ".join(str(run["capitals"]) for run in everywhere)
        error = f"{min(found):.3f} to {max(found):.3f}"
        print(f"{name:15} {rate:4.0%}  {error:19}  {known}")


WAYS = {"mixture": "without the loss", "balanced mixture": "with the loss"}


def print_deaths() -> None:
    """Print idle experts and mean errors, by learning rate."""
    rates = [*runs_of("mixture")]
    print(f"{'learning rate':28}", *(f"{rate:6.0%}" for rate in rates))
    for name, way in (WAYS | {"fixed router": "fixed router"}).items():
        counts, means = {}, {}
        for rate, runs in runs_of(name).items():
            n = sum(len(run["shares"]) for run in runs)
            counts[rate] = f"{sum(map(idle, runs))}"
            means[rate] = f"{mean(errors(runs)):.3f}"
        for what, found in (f"idle of {n}", counts), ("mean error", means):
            columns = (f"{found.get(rate, ''):>6}" for rate in rates)
            print(f"{f'{way}: {what}':28}", *columns)


def shares_of_runs():
    """Draw each recorded mixture as a bar of its experts' shares."""
    columns = len(runs_of("mixture"))
    fig, axes = panels(4, columns, 2, sharex=True, sharey=True)
    fig.subject = "Experts' shares of the choices, a bar for each run"
    for i, (name, way) in enumerate(WAYS.items()):
        for j, (rate, runs) in enumerate(runs_of(name).items()):
            ax = axes[i * columns + j]
            shares = [sorted(run["shares"], reverse=True) for run in runs]
            draw_shares(ax, array(torch.tensor(shares)))
            above = f"rate {rate:.0%}" if i == 0 else ""
            y = f"share, {way}" if j == 0 else ""
            below = "five runs" if i == 1 else ""
            finish(ax, above, below, y, ylim=(0, 1), xticks=[])
    return fig


def draw_shares(ax, shares) -> None:
    """Draw (runs, E) shares as bands of a bar for each run, first below.

    The bands are shades of one colour: they are ranks, not experts.
    """
    bottom, E = shares.cumsum(axis=1) - shares, shares.shape[1]
    style = dict(edgecolor="white", lw=0.8, width=0.9, color=colour("query"))
    for rank in range(E):
        style |= dict(bottom=bottom[:, rank], alpha=1 - 0.85 * rank / E)
        ax.bar(range(len(shares)), shares[:, rank], **style)


# -- which expert a token goes to --


def expert_colours(experts) -> list[str]:
    """Return the colour of each expert, by its number; none is black."""
    tones = *GROUPS[:6], colour("feed-forward"), GROUPS[7]
    return [tones[int(expert) % len(tones)] for expert in experts]


def routing_picture(labels, weights, heading):
    """Draw T tokens in their first experts' colours; (T, E) weights."""
    weights = array(weights)
    size, step = (10, 20) if len(labels) <= 60 else (8, 17)
    names, places, n_lines = text_flow(labels, size)
    height = 142 + n_lines * step
    fig, ax = page(height)
    write(ax, 0, 9, plain(heading), 10, ha="left")
    first = expert_colours(weights.argmax(axis=1))
    boxes(ax, 22, names, places, first, size, step)
    loads = (weights > 0).sum(axis=0) / (weights > 0).sum()  # (E,)
    bars = fig.add_axes((0.08, 32 / height, 0.9, 70 / height))
    experts = range(len(loads))
    bars.bar(experts, loads, color=expert_colours(experts))
    bars.axhline(1 / len(loads), color="black", ls="--", lw=1)
    bars.spines[["top", "right"]].set_visible(False)
    labels = "expert (dashed: even shares)", "share of all choices"
    return finish(bars, "", *labels, xticks=experts, ylim=(0, 0.55))


def routing(llama, layer, steps, runs, text, top_k, *, route) -> Play:
    """Return a widget that shows which experts a text's tokens go to.

    A router reads the unchanged model's input of a feed-forward network.
    steps: of training, where the routers were kept.
    runs: name to the (S, E, D) routers at these S steps.
    route: from (T, D), (E, D), k to (T, k) weights, (T, k) experts, (T, E).
    """

    @lru_cache(maxsize=1)
    def read(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:110] or [0]
        seen = record(llama, torch.tensor(ids))
        return token_texts(llama, ids), seen[f"layers.{layer}.feed_forward.in"]

    def draw(text, run, stage):
        labels, x = read(text)  # x: (T, D)
        weights, chosen, logits = route(x, runs[run][stage], top_k)
        shares = torch.zeros_like(logits).scatter(-1, chosen, weights.float())
        heading = f"{run}, after {steps[stage]} of {steps[-1]} steps"
        return routing_picture(labels, shares, heading)

    last = len(steps) - 1
    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        run=ipw.Dropdown(options=list(runs), description="run"),
        stage=ipw.IntSlider(last, 0, last, description="stage of training"),
    )


# -- the checks of the exercises --


CASES = (64, 100, 3, 8, 2, 0), (64, 100, 3, 8, 2, 1), (10, 7, 2, 5, 3, 2)


@exercise(1, "a pair of numbers: total, active")
def check_1(answer):
    """Check `expert_sizes(D, F, L, E, k, shared)`."""
    more = vary((0,) * 6, (6, 20, 1, 4, 1, 0), (2, 9, 4, 3, 2, 1))
    cases = [tuple(map(add, case, more)) for case in CASES]
    alike(answer, "C_mixture_of_experts", 1, cases, 1e-9)


@exercise(2, "weights (T, E)")
def check_2(answer):
    """Check `expert_weights(logits, k)`."""
    g, e = draws(1), vary(4, 6, 5, 7)
    sizes = (e + 1, e, 2), (9, 8, 3), (5, e, 1), (9, e + 4, e + 4)
    cases = [(torch.randn(T, E, generator=g), k) for T, E, k in sizes]
    alike(answer, "C_mixture_of_experts", 2, cases)


@exercise(3, "a number")
def check_3(answer):
    """Check `balance(logits, chosen)`."""
    g, e = draws(3), vary(4, 6, 5, 7)
    # all choose expert 0 of two: without minlength f has one number, which
    # is multiplied by both of P, and no error hides the mistake
    z = torch.randn(e, 2, generator=g).sort(descending=True).values
    cases = [(z, z.topk(1).indices)]
    for T, E, k in ((e + 2, e, 2), (40, 8, 2), (30, e + 1, 1)):
        z = torch.randn(T, E, generator=g) * 2  # (T, E)
        z[:, -1] -= 50  # the last expert is never chosen
        cases.append((z, z.topk(k).indices))
        cases.append((z, z[:, :-1].topk(k, largest=False).indices))
    alike(answer, "C_mixture_of_experts", 3, cases)
