# Solutions to the exercises of notebook 01; each replaces its stub.


# the notebook's
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
def chat_ids(messages):
    made = [llama_3.bos_id]
    for role, content in messages:
        made += header(role)
        made += plain(content.strip())
        made.append(llama_3.eot_id)
    return made + header("assistant")
