"""Solutions to the exercises of 01_tokenize: each replaces its stub."""


# the notebook's
def plain(t, text):
    return t.encode(text, bos=False, eos=False)


def header(t, role):
    start, end = "<|start_header_id|>", "<|end_header_id|>"
    special = t.special_tokens  # a dict: name to id
    return [special[start], *plain(t, role), special[end], *plain(t, "\n\n")]


def merge(word, pair):
    merged, i = [], 0
    while i < len(word):
        n = 2 if word[i : i + 2] == pair else 1
        merged.append(word[i] + word[i + 1] if n == 2 else word[i])
        i += n
    return tuple(merged)


# %% exercise 1
def cut_word(word, merges):
    parts = tuple(word)
    for left, right, _ in merges:
        parts = merge(parts, (left, right))
    return list(parts)


# %% exercise 2
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    data = b"".join(token_of[i] for i in ids)
    return data.decode("utf-8", errors="replace")


# %% exercise 3
def chat_ids(messages, t):
    made = [t.bos_id]
    for role, content in messages:
        made += header(t, role)
        made += plain(t, content.strip())
        made.append(t.eot_id)
    return made + header(t, "assistant")
