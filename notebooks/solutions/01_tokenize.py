# Solutions to the exercises of notebook 01; each stands in its stub's place.


# %% exercise 1
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    data = b"".join(token_of[i] for i in ids)
    return data.decode("utf-8", errors="replace")


# %% exercise 2
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role)
        made += t.encode(content, bos=False, eos=False)
        made.append(t.eot_id)
    return made + header("assistant")


# %% exercise 3
def fewest(word, ranks):
    # the fewest for the first n bytes: one more than for those before the
    # last token, wherever that token begins
    best = [0]
    for n in range(1, len(word) + 1):
        options = [
            best[start] + 1 for start in range(n) if word[start:n] in ranks
        ]
        best.append(min(options))
    return best[-1]
