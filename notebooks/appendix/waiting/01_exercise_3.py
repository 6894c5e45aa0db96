# Exercise 3 of notebook 01 (fewest tokens, dynamic programming), taken out; no appendix claims it.
# Text:
# **Exercise 3** (45 minutes): is BPE's way of cutting the shortest? Write `fewest(word, ranks)`: the smallest number of tokens whose bytes,
# one after another, are `word` (`bytes`; all single bytes are in `ranks`; no token for `b""`). Neither the longest token first nor BPE
# always finds it; trying all cuts of a long word takes too long. Think of the fewest tokens for the first 1, 2, 3, … bytes.

# %% stub
def fewest(word, ranks): ...

# %% check
def check_3(answer):
    def right(word, ranks):
        best = [0]  # for the first 0, 1, 2, … bytes
        for end in range(1, len(word) + 1):
            starts = (s for s in range(end) if word[s:end] in ranks)
            best.append(1 + min(best[s] for s in starts))
        return best[-1]

    def longest_first(word, ranks):
        count = 0
        while word:
            fits = (n for n in range(len(word), 0, -1) if word[:n] in ranks)
            word, count = word[next(fits) :], count + 1
        return count

    def longest_last(word, ranks):
        turned = {token[::-1]: rank for token, rank in ranks.items()}
        return longest_first(word[::-1], turned)

    mistakes = {
        "the longest token first is not always best": longest_first,
        "the longest token last is not always best": longest_last,
        "that is what BPE takes": lambda w, r: len(merge_by_rank(w, r)),
        "those are the bytes": lambda w, r: len(w),
        "one too many": lambda w, r: right(w, r) + 1,
        "one too few": lambda w, r: right(w, r) - 1,
    }
    r = random.Random(3)
    small = [*"abcdefuvwxyz", "bc", "ab", "cd", "cdef", "abcd"]
    small += ["wx", "yz", "uvwx", "wxyz"]  # here the last is a trap
    small = {token.encode(): rank for rank, token in enumerate(small)}
    cases = [(b"abcdef", small), (b"", small), (b"abcdef" * 5, small)]
    cases += [(b"uvwxyz", small), (b"abcdefuvwxyz", small)]
    for _ in range(30):
        cases.append((b"".join(r.choices(list(small), k=5)), small))
    words = sorted({w.encode() for s in sentences for w in s.split()})
    cases += [(b" " + word, ranks) for word in words]
    for word, some in cases:
        found, wanted = answer(word, some), right(word, some)
        if found is None and word == b"abcdef":
            return "not done yet"
        if found != wanted:
            for words, mistake in mistakes.items():
                if found == mistake(word, some):
                    return f"✗ {words}: {word} takes {wanted}, not {found}"
            return f"✗ {word}: found {found}, wanted {wanted}"
    more = sum(len(merge_by_rank(w, s)) > right(w, s) for w, s in cases)
    return f"✓ BPE takes more on {more} of these {len(cases)} words"


print("Exercise 3:", check_3(fewest))

# %% solution
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


# %% mistakes
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
