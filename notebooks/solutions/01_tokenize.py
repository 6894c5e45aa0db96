# Solutions to the exercises of notebook 01; each replaces its stub.


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
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role)
        made += encode(content.strip())
        made.append(t.eot_id)
    return made + header("assistant")
