import pytest
import torch
import torch.nn.functional as F
from helpers import random_llama, small_config

import llamalib
from llamalib.viz import nb06 as widgets
from llamalib.course.experiment import STORY, loss, replaced


def bars(play, **values):
    shown = {name: c.value for name, c in play.controls.items()}
    (ax,) = play.draw(**shown | values).axes
    return [end[1] for _, end in ax.collections[0].get_segments()]


def by_hand(llama, text, layer):
    """Gate and gate times content of every neuron: (T, F) each."""
    w, c = llama.state_dict(), llama.config
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    freqs_cis = llama.freqs_cis_for(0, len(ids))
    mask = llamalib.causal_mask(len(ids))
    x = w["tok_embeddings.weight"][torch.tensor(ids)]
    for before in range(layer):
        x = llamalib.transformer_block(x, w, before, freqs_cis, mask, c)
    weights = [w[f"layers.{layer}.attention.w{m}.weight"] for m in "qkvo"]
    norm1, norm2 = (
        w[f"layers.{layer}.{half}_norm.weight"]
        for half in ("attention", "ffn")
    )
    x = x + llamalib.self_attention(
        llamalib.rms_norm(x, norm1, c.norm_eps),
        *weights,
        freqs_cis,
        mask,
        head_dim=c.head_dim,
    )
    u = llamalib.rms_norm(x, norm2, c.norm_eps)
    w1, w3 = (w[f"layers.{layer}.feed_forward.w{i}.weight"] for i in (1, 3))
    gate = F.silu(u @ w1.T)
    return gate, gate * (u @ w3.T)


def test_the_bars_are_the_models(pocket):
    play = widgets.neurons(pocket, STORY)
    for layer, neuron in ((0, 503), (3, 7), (5, 1023)):
        _, wanted = by_hand(pocket, STORY, layer)
        found = torch.tensor(bars(play, layer=layer, neuron=neuron))
        close = (found - wanted[:, neuron]).abs().max() < 1e-3
        assert close, (layer, neuron)


def test_opens_with_the_neuron_that_is_most_active(pocket):
    play = widgets.neurons(pocket, STORY)
    layer = pocket.config.n_layers // 2
    _, activation = by_hand(pocket, STORY, layer)
    most = activation[1:].abs().amax(0).argmax().item()
    assert repr(play) == (
        f"Play(layer={layer}, neuron={most}, order='by number')"
    )
    assert play.picture.value and not play.message.value


def test_controls_change_the_picture(pocket):
    play = widgets.neurons(pocket, STORY)
    seen = {bytes(play.picture.value)}
    for name, value in (
        ("layer", 1),
        ("neuron", 2),
        ("order", "selective first"),
    ):
        play.controls[name].value = value
        assert not play.message.value
        seen.add(bytes(play.picture.value))
    assert len(seen) == 4
    assert play.controls["layer"].max == pocket.config.n_layers - 1
    assert play.controls["neuron"].max == pocket.config.hidden_dim - 1


def test_selective_first(pocket):
    play = widgets.neurons(pocket, STORY)

    def selective(neuron):
        heights = bars(play, layer=2, neuron=neuron, order="selective first")
        sizes = torch.tensor(heights)[1:].abs()
        return (sizes.max() / sizes.mean()).item()

    places = [0, 1, 2, 100, 500, 1023]
    found = [selective(place) for place in places]
    assert found == sorted(found, reverse=True)
    assert found[0] > 20


def test_what_the_notebook_says_of_two_neurons(pocket):
    """503 of layer 0 is for " M"; 439 of layer 4 for one comma of two."""
    play = widgets.neurons(pocket, STORY)
    ids = pocket.tokenizer.encode(STORY, bos=True, eos=False)
    labels = [pocket.tokenizer.decode([i]) for i in ids]
    found = torch.tensor(bars(play, layer=0, neuron=503))
    m = torch.tensor([label == " M" for label in labels])
    assert m.sum() == 5
    assert found[m].min() > 10 * found[~m].abs().max()
    found = torch.tensor(bars(play, layer=4, neuron=439)).abs()
    first, second = (t for t, label in enumerate(labels) if label == ",")
    assert found.argmax() == first
    assert found[first] > 20 * found[second]


def test_what_exercise_4_says_of_a_neuron(pocket):
    """Without 172 of layer 0 the loss is 1.05."""
    w = pocket.state_dict()
    own = w["layers.0.feed_forward.w2.weight"].data_ptr()

    def without(neuron):
        def spoiled(x, w1, w2, w3):
            if w2.data_ptr() == own:
                w2 = w2.clone()
                w2[:, neuron] = 0
            return F.linear(F.silu(x @ w1.T) * (x @ w3.T), w2)

        with replaced(feed_forward=spoiled):
            return loss(pocket, STORY)

    # the next three of all 1024
    others = [without(neuron) for neuron in (969, 821, 899)]
    assert 1.045 < without(172) < 1.055
    assert max(others) < 1


def test_long_texts_are_cut_and_none_is_an_error(pocket):
    assert len(bars(widgets.neurons(pocket, STORY * 3))) == 100
    assert len(bars(widgets.neurons(pocket, "a"))) == 2
    with pytest.raises(ValueError, match="has no token"):
        widgets.neurons(pocket, "")


def test_the_models_function_is_put_back(pocket):
    before = llamalib.feed_forward
    widgets.neurons(pocket, "One")
    assert llamalib.model.feed_forward is before


def test_other_proportions(pocket):
    llama = random_llama(small_config(n_layers=1, vocab_size=3328))
    llama.tokenizer = pocket.tokenizer
    play = widgets.neurons(llama, "One summer day")
    assert play.controls["layer"].max == 0
    assert len(bars(play, neuron=0)) == len(
        pocket.tokenizer.encode("One summer day", bos=True, eos=False)
    )
