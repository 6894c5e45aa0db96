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


# %% exercise 2: an incremental decoder
def to_text(ids, ranks):
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    token_of = {rank: token for token, rank in ranks.items()}
    text = "".join(decoder.decode(token_of[i]) for i in ids)
    return text + decoder.decode(b"", True)


# %% exercise 3: headers as text with their names allowed
def chat_ids(messages, t):
    def control(text):
        named = dict(bos=False, eos=False, allowed_special="all")
        return tuple(t.encode(text, **named))

    ids = control("<|begin_of_text|>")
    for role, content in messages:
        ids += control(f"<|start_header_id|>{role}<|end_header_id|>\n\n")
        ids += tuple(plain(t, content.strip())) + control("<|eot_id|>")
    return ids + control("<|start_header_id|>assistant<|end_header_id|>\n\n")
