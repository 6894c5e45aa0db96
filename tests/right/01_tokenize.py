"""Unusual right answers to the exercises of notebook 01."""


# %% exercise 1: the first merge that occurs, until there is none
def cut_word(word, merges):
    order = {(left, right): n for n, (left, right, _) in enumerate(merges)}
    parts = list(word)
    while found := [
        (order[pair], i)
        for i, pair in enumerate(zip(parts, parts[1:]))
        if pair in order
    ]:
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


# %% exercise 1: text with brackets
def cut_word(word, merges):
    text = "".join(f"<{character}>" for character in word)
    for left, right, _ in merges:
        text = text.replace(f"<{left}><{right}>", f"<{left}{right}>")
    return text[1:-1].split("><") if text else []


# %% exercise 1: a tuple
def cut_word(word, merges):
    parts = tuple(word)
    for left, right, times in merges:
        parts = merge(parts, (left, right))
    return parts


# %% exercise 1: recursion
def cut_word(word, merges):
    def cut(parts, left):
        return cut(merge(parts, left[0][:2]), left[1:]) if left else parts

    return [*cut(tuple(word), list(merges))]


# %% exercise 2: a bytearray and a search for each id
def to_text(ids, ranks):
    data = bytearray()
    for i in ids:
        for token in ranks:
            if ranks[token] == i:
                data += token
    return str(data, "utf-8", "replace")


# %% exercise 2: a list in the order of the ranks
def to_text(ids, ranks):
    tokens = sorted(ranks, key=ranks.get)
    return b"".join(map(tokens.__getitem__, ids)).decode(errors="replace")


# %% exercise 2: an incremental decoder
def to_text(ids, ranks):
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    token_of = {rank: token for token, rank in ranks.items()}
    text = "".join(decoder.decode(token_of[i]) for i in ids)
    return text + decoder.decode(b"", True)


# %% exercise 3: a tensor
def chat_ids(messages):
    rows = [[t.bos_id]]
    for role, content in messages:
        rows += [header(role), encode(content.strip()), [t.eot_id]]
    rows.append(header("assistant"))
    return torch.cat([torch.tensor(row) for row in rows])


# %% exercise 3: headers as text with their names allowed
def chat_ids(messages):
    def control(text):
        return tuple(encode(text, allowed_special="all"))

    ids = control("<|begin_of_text|>")
    for role, content in messages:
        ids += control(f"<|start_header_id|>{role}<|end_header_id|>\n\n")
        ids += tuple(encode(content.strip())) + control("<|eot_id|>")
    return ids + control("<|start_header_id|>assistant<|end_header_id|>\n\n")


# %% exercise 3: tiktoken, and an array
def chat_ids(messages):
    import numpy as np

    ids = [t.bos_id]
    for role, content in [*messages, ("assistant", None)]:
        ids += header(role)
        if content is not None:
            ids += encoding.encode(content.strip(), disallowed_special=())
            ids += [special_tokens["<|eot_id|>"]]
    return np.array(ids)
