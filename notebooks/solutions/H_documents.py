"""Solution of the exercise of appendix H."""


# %% exercise 1
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
