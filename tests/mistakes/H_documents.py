"""Mistakes in the exercise of appendix H, with words of the check."""
# ruff: noqa


# %% exercise 1: the longest token first is not always best
def fewest(word, ranks):
    count = 0
    while word:
        n = len(word)
        while word[:n] not in ranks:
            n -= 1
        word, count = word[n:], count + 1
    return count


# %% exercise 1: the longest token last is not always best
def fewest(word, ranks):
    count = 0
    while word:
        n = len(word)
        while word[-n:] not in ranks:
            n -= 1
        word, count = word[:-n], count + 1
    return count


# %% exercise 1: takes 4, not 5
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


# %% exercise 1: that is what BPE takes
def fewest(word, ranks):
    return len(merge_by_rank(word, ranks))


# %% exercise 1: those are the bytes
def fewest(word, ranks):
    return len(word)


# %% exercise 1: one too few
def fewest(word, ranks):
    best = [-1]
    for n in range(1, len(word) + 1):
        best.append(min(best[s] + 1 for s in range(n) if word[s:n] in ranks))
    return best[-1]


# %% exercise 1: found 7, expected
def fewest(word, ranks):
    return 7
