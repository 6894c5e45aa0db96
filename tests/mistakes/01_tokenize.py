"""Mistakes in the exercises of notebook 01, with words of the check."""


# %% exercise 1: you decoded each token alone
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return "".join(token_of[i].decode("utf-8", "replace") for i in ids)


# %% exercise 1: you dropped the broken bytes
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    data = b"".join(token_of[i] for i in ids)
    return data.decode("utf-8", errors="ignore")


# %% exercise 1: errors='replace'
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return b"".join(token_of[i] for i in ids).decode("utf-8")


# %% exercise 1: you took each byte for a character
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return "".join(chr(byte) for i in ids for byte in token_of[i])


# %% exercise 1: you stopped at the bytes
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return b"".join(token_of[i] for i in ids)


# %% exercise 1: found 'llama', wanted
def to_text(ids, ranks):
    return "llama"


# %% exercise 2: you left out the two line ends after the header
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in [*messages, ("assistant", None)]:
        made.append(t.special_tokens["<|start_header_id|>"])
        made += encode(role)
        made.append(t.special_tokens["<|end_header_id|>"])
        if content is not None:
            made += [*encode(content), t.eot_id]
    return made


# %% exercise 2: one line end after the header
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in [*messages, ("assistant", None)]:
        made.append(t.special_tokens["<|start_header_id|>"])
        made += encode(role)
        made.append(t.special_tokens["<|end_header_id|>"])
        made += encode("\n")
        if content is not None:
            made += [*encode(content), t.eot_id]
    return made


# %% exercise 2: a message ends with <|eot_id|>
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content)]
    return made + header("assistant")


# %% exercise 2: not with eos
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role) + t.encode(content, bos=False, eos=True)
    return made + header("assistant")


# %% exercise 2: the header of the assistant's answer is missing
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return made


# %% exercise 2: belongs to the start, once
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role) + t.encode(content, bos=True, eos=False)
        made.append(t.eot_id)
    return made + header("assistant")


# %% exercise 2: <|begin_of_text|> is missing
def chat_ids(messages):
    made = []
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return made + header("assistant")


# %% exercise 2: a user's text became a control token
def chat_ids(messages):
    text = "<|begin_of_text|>"
    for role, content in messages:
        text += f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        text += f"{content}<|eot_id|>"
    text += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    return t.encode(text, bos=False, eos=False, allowed_special="all")


# %% exercise 2: names as text
def chat_ids(messages):
    text = ""
    for role, content in messages:
        text += f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        text += f"{content}<|eot_id|>"
    text += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    return t.encode(text, bos=True, eos=False)


# %% exercise 2: you stripped the content
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content.strip()), t.eot_id]
    return made + header("assistant")


# %% exercise 2: that is a text
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return t.decode(made + header("assistant"))


# %% exercise 2: cut at other places
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role)
        made += [i for character in content for i in encode(character)]
        made.append(t.eot_id)
    return made + header("assistant")


# %% exercise 3: the longest token first is not always best
def fewest(word, ranks):
    count = 0
    while word:
        n = len(word)
        while word[:n] not in ranks:
            n -= 1
        word, count = word[n:], count + 1
    return count


# %% exercise 3: the longest token last is not always best
def fewest(word, ranks):
    count = 0
    while word:
        n = len(word)
        while word[-n:] not in ranks:
            n -= 1
        word, count = word[:-n], count + 1
    return count


# %% exercise 3: takes 4, not 5
def fewest(word, ranks):
    def greedy(word, last):
        count = 0
        while word:
            n = len(word)
            while (word[-n:] if last else word[:n]) not in ranks:
                n -= 1
            word, count = word[:-n] if last else word[n:], count + 1
        return count

    return min(greedy(word, False), greedy(word, True))


# %% exercise 3: that is what BPE takes
def fewest(word, ranks):
    parts = [bytes([b]) for b in word]
    while (i := lowest_pair(parts, ranks)) is not None:
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return len(parts)


# %% exercise 3: those are the bytes
def fewest(word, ranks):
    return len(word)


# %% exercise 3: one too few
def fewest(word, ranks):
    best = [-1]
    for n in range(1, len(word) + 1):
        best.append(min(best[s] + 1 for s in range(n) if word[s:n] in ranks))
    return best[-1]


# %% exercise 3: found 7, wanted
def fewest(word, ranks):
    return 7
