"""Mistakes in the exercises of appendix A, with words of the check."""
# ruff: noqa


# %% exercise 1: the result: a value is 1 off
def same_text_mask(ids, begin_id):
    text = (ids == 1).cumsum(0)
    return (text[:, None] == text).tril()


# %% exercise 1: before the first begin is a text too
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return ((text[:, None] == text) & (text > 0)).tril()


# %% exercise 1: a query sees the texts before its own
def same_text_mask(ids, begin_id):
    T = len(ids)
    return torch.ones(T, T).tril().bool()


# %% exercise 1: a query sees later tokens of its text
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return text[:, None] == text


# %% exercise 1: the other way round
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return ~(text[:, None] == text).tril()


# %% exercise 1: rows and columns are exchanged
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return (text[:, None] == text).triu()


# %% exercise 1: a query may see itself too
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return (text[:, None] == text).tril(-1)


# %% exercise 1: expected booleans, not a mask
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    same = (text[:, None] == text).tril()
    return torch.zeros(same.shape).masked_fill(~same, float("-inf"))


# %% exercise 1: a value is 1 off
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    mask = (text[:, None] == text).tril()
    mask[:, 0] = True  # everyone sees the first token
    return mask


# %% exercise 1: the result has shape (6,); expected (6, 6)
def same_text_mask(ids, begin_id):
    return (ids == begin_id).cumsum(0)


# %% exercise 2: a mean of means
def loss_of_parts(parts):
    losses = [next_token_loss(z, y) for z, y in parts if (y >= 0).any()]
    return sum(losses) / len(losses)


# %% exercise 2: nan: a part without a label has no mean
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        labels = (y != IGNORE).sum()
        total, n = total + next_token_loss(z, y) * labels, n + labels
    return total / n


# %% exercise 2: you divide by all positions
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        total += F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
        n += y.numel()
    return total / n


# %% exercise 2: this is the sum; expected the mean
def loss_of_parts(parts):
    return sum(
        F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
        for z, y in parts
    )


# %% exercise 2: expected a number
def loss_of_parts(parts):
    return torch.stack([next_token_loss(z, y) for z, y in parts])


# %% exercise 2: the result is 1.0; expected another number
def loss_of_parts(parts):
    return 1.0


# %% exercise 2: backward cannot reach it
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        labels = (y != IGNORE).sum().item()
        if labels:
            total += next_token_loss(z, y).item() * labels
        n += labels
    return total / n
