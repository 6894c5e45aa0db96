"""Unusual right answers to the exercises of notebook 07."""


# %% exercise 1: with NumPy
def my_softmax(z):
    import numpy as np

    z = z.numpy()
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# %% exercise 2: with −100 as the last label
def mean_surprisal(logits, tokens):
    labels = tokens.roll(-1)
    labels[-1] = -100
    return F.cross_entropy(logits, labels).item()


# %% exercise 2: a tensor of shape (1,)
def mean_surprisal(logits, tokens):
    log_p = torch.log_softmax(logits, -1)
    return -log_p[:-1].gather(1, tokens[1:, None]).mean(0)


# %% exercise 3: hooks that compare, parts alone
def first_wrong(right, wrong, tokens):
    seen, names = {}, []
    hooks = []

    def compare(name):
        def hook(module, args, out):
            if name in seen:
                if (out != seen[name]).any():
                    names.append(name)
            seen[name] = out.clone()

        return hook

    for model in (right, wrong):
        for name, module in model.named_modules():
            if not list(module.children()):
                hooks.append(module.register_forward_hook(compare(name)))
        model(tokens[None])
    for hook in hooks:
        hook.remove()
    return names[0]
