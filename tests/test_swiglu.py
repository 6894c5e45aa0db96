import torch

from llamalib import feed_forward, ffn_hidden_dim


def weights(D=8, hidden=24):
    g = torch.Generator().manual_seed(0)
    shapes = [(hidden, D), (D, hidden), (hidden, D)]
    return [torch.randn(shape, generator=g) for shape in shapes]


def test_neuron_by_neuron():
    w1, w2, w3 = weights()
    x = torch.randn(8)
    expected = torch.zeros(8)
    for n in range(24):
        z = w1[n] @ x
        expected += z * torch.sigmoid(z) * (w3[n] @ x) * w2[:, n]
    assert torch.allclose(feed_forward(x, w1, w2, w3), expected, atol=1e-4)


def test_gate_and_content_are_not_the_same():
    w1, w2, w3 = weights()
    x = torch.randn(2, 3, 8)
    assert feed_forward(x, w1, w2, w3).shape == (2, 3, 8)
    swapped = feed_forward(x, w3, w2, w1)
    assert not torch.allclose(feed_forward(x, w1, w2, w3), swapped)


def test_hidden_sizes():
    assert ffn_hidden_dim(2048, 256, 1.5) == 8192
    assert ffn_hidden_dim(3072, 256, 1.0) == 8192
    assert ffn_hidden_dim(4096, 1024, 1.3) == 14336
    assert ffn_hidden_dim(8192, 4096, 1.3) == 28672
    assert ffn_hidden_dim(4096, 256) == 11008  # Llama 1 and 2, 7B
