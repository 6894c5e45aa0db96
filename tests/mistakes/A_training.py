# ruff: noqa
# %% exercise 1: not shifted
def packed_labels(ids, end_id):
    return ids.masked_fill(ids == end_id, IGNORE)


# %% exercise 1: an end token is asked for the next text's begin
def packed_labels(ids, end_id):
    labels = ids.roll(-1)
    labels[-1] = IGNORE
    return labels


# %% exercise 1: an end token is asked for the next text's begin
def packed_labels(ids, end_id):
    return torch.cat([ids[1:], torch.tensor([end_id])])


# %% exercise 1: the last place has 1: nothing is known there
def packed_labels(ids, end_id):
    return ids.roll(-1).masked_fill(ids == end_id, IGNORE)


# %% exercise 1: the end token must be learned
def packed_labels(ids, end_id):
    labels = ids.roll(-1)
    labels[-1] = IGNORE
    labels = labels.masked_fill(ids == end_id, IGNORE)
    return labels.masked_fill(labels == end_id, IGNORE)


# %% exercise 1: you changed the ids that you were given
def packed_labels(ids, end_id):
    labels = ids.roll(-1)
    labels[-1] = IGNORE
    labels[ids == end_id] = IGNORE
    ids[-1] = end_id
    return labels


# %% exercise 1: (8,) returned, (9,) wanted
def packed_labels(ids, end_id):
    return ids[1:].masked_fill(ids[:-1] == end_id, IGNORE)


# %% exercise 1: list returned, a tensor wanted
def packed_labels(ids, end_id):
    return [*ids[1:].tolist(), IGNORE]


# %% exercise 1: gives
def packed_labels(ids, end_id):
    return torch.full_like(ids, IGNORE)


# %% exercise 1: (end 3) gives
def packed_labels(ids, end_id):
    labels = ids.roll(-1)
    labels[-1] = IGNORE
    return labels.masked_fill(ids == 2, IGNORE)


# %% exercise 2: begin 3: the entry
def same_text_mask(ids, begin_id):
    text = (ids == 1).cumsum(0)
    return (text[:, None] == text).tril()


# %% exercise 2: for [5, 6, 1, 1, 9], begin 1: the entry [0, 0] is wrong
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return ((text[:, None] == text) & (text > 0)).tril()


# %% exercise 2: ndarray returned, a tensor wanted
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return (text[:, None] == text).tril().numpy()


# %% exercise 2: a query sees the texts before its own
def same_text_mask(ids, begin_id):
    T = len(ids)
    return torch.ones(T, T).tril().bool()


# %% exercise 2: a query sees later tokens of its text
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return text[:, None] == text


# %% exercise 2: the other way round
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return ~(text[:, None] == text).tril()


# %% exercise 2: rows and columns are exchanged
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return (text[:, None] == text).triu()


# %% exercise 2: a query may look at itself too
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    return (text[:, None] == text).tril(-1)


# %% exercise 2: wanted booleans
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    same = (text[:, None] == text).tril()
    return torch.zeros(same.shape).masked_fill(~same, float("-inf"))


# %% exercise 2: the entry [3, 0] is wrong
def same_text_mask(ids, begin_id):
    text = (ids == begin_id).cumsum(0)
    mask = (text[:, None] == text).tril()
    mask[:, 0] = True  # everyone sees the first token
    return mask


# %% exercise 2: returned, (6, 6) wanted
def same_text_mask(ids, begin_id):
    return (ids == begin_id).cumsum(0)


# %% exercise 3: a mean of means
def loss_of_parts(parts):
    losses = [next_token_loss(z, y) for z, y in parts if (y >= 0).any()]
    return sum(losses) / len(losses)


# %% exercise 3: nan: a part without a label has no mean
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        labels = (y != IGNORE).sum()
        total, n = total + next_token_loss(z, y) * labels, n + labels
    return total / n


# %% exercise 3: divided by all places
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        total += F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
        n += y.numel()
    return total / n


# %% exercise 3: that is the sum, not the mean
def loss_of_parts(parts):
    return sum(
        F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
        for z, y in parts
    )


# %% exercise 3: (2,) returned, () wanted
def loss_of_parts(parts):
    return torch.stack([next_token_loss(z, y) for z, y in parts])


# %% exercise 3: list returned, a tensor wanted
def loss_of_parts(parts):
    return [next_token_loss(z, y) for z, y in parts]


# %% exercise 3: wanted
def loss_of_parts(parts):
    return 1.0


# %% exercise 3: no gradient can go back from it
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        labels = (y != IGNORE).sum().item()
        if labels:
            total += next_token_loss(z, y).item() * labels
        n += labels
    return total / n


# %% exercise 3: its gradient at the logits is not
def loss_of_parts(parts):
    total, n = 0.0, 0
    for z, y in parts:
        each = F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
        total = total.detach() + each if n else each  # the last part's alone
        n += (y != IGNORE).sum()
    return total / n


# %% exercise 4: those are nats: divide by ln 2
def bits_per_byte(loss, n_tokens, text):
    return loss * n_tokens / len(text.encode())


# %% exercise 4: bits are more than nats
def bits_per_byte(loss, n_tokens, text):
    return loss * n_tokens * math.log(2) / len(text.encode())


# %% exercise 4: a character can have several bytes
def bits_per_byte(loss, n_tokens, text):
    return loss * n_tokens / math.log(2) / len(text)


# %% exercise 4: per token still
def bits_per_byte(loss, n_tokens, text):
    return loss / math.log(2) / len(text.encode())


# %% exercise 4: not bits a byte
def bits_per_byte(loss, n_tokens, text):
    return loss * n_tokens / math.log(2)


# %% exercise 4: loss is already in nats
def bits_per_byte(loss, n_tokens, text):
    return math.log(loss) * n_tokens / math.log(2) / len(text.encode())


# %% exercise 4: str returned, a number wanted
def bits_per_byte(loss, n_tokens, text):
    return "many"


# %% exercise 4: wanted
def bits_per_byte(loss, n_tokens, text):
    return 0.5
