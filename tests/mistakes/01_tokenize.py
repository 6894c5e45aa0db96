"""Mistakes in the exercises of notebook 01, with words of the check."""


# %% exercise 1: a pair may occur more than once
def cut_word(word, merges):
    parts = list(word)
    for left, right, _ in merges:
        for i in range(len(parts) - 1):
            if parts[i : i + 2] == [left, right]:
                parts[i : i + 2] = [left + right]
                break
    return parts


# %% exercise 1: skip a merge that does not occur
def cut_word(word, merges):
    parts = tuple(word)
    for left, right, _ in merges:
        if (left, right) not in zip(parts, parts[1:]):
            break
        parts = merge(parts, (left, right))
    return list(parts)


# %% exercise 1: you returned the characters
def cut_word(word, merges):
    return list(word)


# %% exercise 1: the first merge is applied first, not the last
def cut_word(word, merges):
    parts = tuple(word)
    for left, right, _ in reversed(merges):
        parts = merge(parts, (left, right))
    return list(parts)


# %% exercise 1: not what is longest or left
def cut_word(word, merges):
    known = {left + right for left, right, _ in merges}
    parts = []
    while word:
        n = len(word)
        while n > 1 and word[:n] not in known:
            n -= 1
        parts.append(word[:n])
        word = word[n:]
    return parts


# %% exercise 1: not what is longest or left
def cut_word(word, merges):
    known, parts = {merge[:2] for merge in merges}, list(word)
    while True:
        for i, pair in enumerate(zip(parts, parts[1:])):
            if pair in known:
                parts[i : i + 2] = ["".join(pair)]
                break
        else:
            return parts


# %% exercise 1: is 'th th', a str; expected another list of 2
def cut_word(word, merges):
    parts = tuple(word)
    for left, right, _ in merges:
        parts = merge(parts, (left, right))
    return " ".join(parts)


# %% exercise 2: you decoded each token alone
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return "".join(token_of[i].decode("utf-8", "replace") for i in ids)


# %% exercise 2: broken bytes became nothing
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    data = b"".join(token_of[i] for i in ids)
    return data.decode("utf-8", errors="ignore")


# %% exercise 2: your code raises UnicodeDecodeError
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return b"".join(token_of[i] for i in ids).decode("utf-8")


# %% exercise 2: a byte is not a character
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return "".join(chr(byte) for i in ids for byte in token_of[i])


# %% exercise 2: you stopped at the bytes
def to_text(ids, ranks):
    token_of = {rank: token for token, rank in ranks.items()}
    return b"".join(token_of[i] for i in ids)


# %% exercise 2: an id is a rank, not the value of a byte
def to_text(ids, ranks):
    return bytes(i % 256 for i in ids).decode("utf-8", "replace")


# %% exercise 2: the result is 'llama', a str; expected another str
def to_text(ids, ranks):
    return "llama"


# %% exercise 3: the two line breaks after a header are missing
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in [*messages, ("assistant", None)]:
        made.append(t.special_tokens["<|start_header_id|>"])
        made += encode(role)
        made.append(t.special_tokens["<|end_header_id|>"])
        if content is not None:
            made += [*encode(content), t.eot_id]
    return made


# %% exercise 3: one line break after a header; expected two
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


# %% exercise 3: a message ends with <|eot_id|>
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content)]
    return made + header("assistant")


# %% exercise 3: a message ends with <|eot_id|>, not eos
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role) + t.encode(content, bos=False, eos=True)
    return made + header("assistant")


# %% exercise 3: the header of the assistant's answer is missing
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return made


# %% exercise 3: is at the start, once
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role) + t.encode(content, bos=True, eos=False)
        made.append(t.eot_id)
    return made + header("assistant")


# %% exercise 3: <|begin_of_text|> is missing
def chat_ids(messages):
    made = []
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return made + header("assistant")


# %% exercise 3: a user's text became a special token
def chat_ids(messages):
    text = "<|begin_of_text|>"
    for role, content in messages:
        text += f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        text += f"{content}<|eot_id|>"
    text += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    return t.encode(text, bos=False, eos=False, allowed_special="all")


# %% exercise 3: the names of special tokens became plain text
def chat_ids(messages):
    text = ""
    for role, content in messages:
        text += f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        text += f"{content}<|eot_id|>"
    text += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    return t.encode(text, bos=True, eos=False)


# %% exercise 3: the white space around a message is still there
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return made + header("assistant")


# %% exercise 3: a text; expected its ids
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += [*header(role), *encode(content), t.eot_id]
    return t.decode(made + header("assistant"))


# %% exercise 3: right text, cut at other places
def chat_ids(messages):
    made = [t.bos_id]
    for role, content in messages:
        made += header(role)
        made += [i for character in content for i in encode(character)]
        made.append(t.eot_id)
    return made + header("assistant")
