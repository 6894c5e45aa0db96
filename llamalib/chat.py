"""Talk to an Instruct model in a terminal; each turn runs only what is new."""

import datetime
import os
import re
import sys
from contextlib import suppress

import torch

from .cache import KVCache
from .checks import (
    check_first_pass,
    check_sampling,
    check_seed,
    is_count,
    printable,
    require,
)
from .dialogues import header, is_chatml, message_ids, opening_ids
from .generate import decode_one, prefill
from .load import describe, load
from .sampling import make_sampler
from .threads import choose_threads

END = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
HELP = f"/new begins a new conversation, /bye or {END} ends, Ctrl-C interrupts"


def talk(folder, system, date, seed, max_new_tokens, context, **sampling):
    """Read messages and print answers until the input ends."""
    check_sampling(**sampling)
    check_seed(seed)
    if sys.stdin is None:
        raise RuntimeError("standard input is closed: open it to type")
    llama = load(folder)
    choose_threads(llama)
    check_trained(llama)
    check_first_pass(llama)
    # from Llama 3.1 on, Meta's template has dates
    if date is None and llama.config.use_scaled_rope:
        date = f"{datetime.date.today():%d %b %Y}"
    # 0.9: as in the generation_config.json of Meta's Instruct models
    choose = make_sampler(llama.device, seed, top_p=0.9, **sampling)
    opening = opening_ids(llama.tokenizer, system, date)
    chat = Chat(llama, choose, opening, max_new_tokens, context)
    print(f"{describe(llama)}\n{HELP}")
    with suppress(ImportError):  # for arrow keys; Windows has its own
        import readline  # noqa: F401
    while True:
        try:
            text = input("\nyou> ").strip()
            if text.lower().removeprefix("/") in ("bye", "exit", "quit"):
                return
            if text.lower() == "/new":
                chat.messages.clear()
            elif re.fullmatch(r"/\w+", text):
                print(HELP)
            elif text:
                chat.reply(text)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print(" [interrupted]")
        except ValueError as error:  # such as a full context
            print(printable(f"[{error}]"))  # it may name a folder


def check_trained(llama) -> None:
    """Raise ValueError if a model was not trained for dialogues.

    In Llama 3's base model <|eot_id|> is a stop token, too. But embeddings of
    tokens that no text held stay close together (seen in the pocket Llama,
    reported of Llama 3, not verified on 3.2).
    """
    t, why = llama.tokenizer, ""
    chatml = is_chatml(t)
    if t.eot_id not in t.stop_tokens:
        why = "the token that ends a message is not among its stop tokens"
    elif unused := [i for n, i in t.special_tokens.items() if "reserved" in n]:
        rows = llama.tok_embeddings.weight[[t.eot_id, *unused]].float()
        far = (rows - rows[1:].mean(0)).norm(dim=-1)
        if not chatml and far[0] <= 2 * far[1:].median():
            why = "the embedding of <|eot_id|> is that of an unused token"
    require(
        not why,
        f"{llama.name} was not trained for dialogues ({why}): name an "
        "Instruct model, or continue a text with "
        '`python -m llamalib run "…"`',
    )


class Chat:
    """A conversation: its messages, and the ids and KV cache of its tokens.

    opening: the ids before the first message.
    most: the largest number of tokens in an answer.
    context: the capacity of the cache; None: 4,096, or what the model holds.
    """

    def __init__(self, llama, choose, opening, most, context=None):
        top = llama.config.context_length
        context = min(4096, top) if context is None else context
        for name, n in ("max_new_tokens", most), ("context", context):
            good = is_count(n) and n <= top
            require(good, f"{name} must be from 1 to {top}, got {n!r:.80}")
        self.llama, self.choose, self.opening = llama, choose, opening
        self.messages, self.ids, self.most = [], [], most
        n = len(self.ids_of([]))
        require(
            n < context,
            f"the system message has {n} tokens with its frame, the context "
            f"holds {context}: shorten --system, or raise --context",
        )
        like = {"device": llama.device, "dtype": llama.dtype}
        self.cache = KVCache(llama.config, context, **like)

    def reply(self, text: str) -> None:
        """Print the answer to a message; keep both if there is an answer."""
        question, answer = {"role": "user", "content": text}, ""
        ids = self.run(question)
        try:
            for piece in self.llama.tokenizer.decode_stream(ids):
                answer += piece
                print(printable(piece), end="", flush=True)
            print(self.note)
        finally:  # an interrupted answer is kept as far as it came
            if answer:
                said = {"role": "assistant", "content": answer}
                self.messages += [question, said]

    @torch.inference_mode()
    def run(self, question: dict):
        """Yield the answer's ids, up to its stop token; set `note`."""
        t, S = self.llama.tokenizer, self.cache.max_seq_len
        ids = self.fitting_ids(question)
        kept = 0  # ids whose keys and values stay in the cache
        for old, new in zip(self.ids, ids[:-1], strict=False):
            if old != new:
                break
            kept += 1
        self.ids = ids[:kept]
        self.cache.advance(kept - self.cache.length)  # back to what is kept
        rest = torch.tensor([ids[kept:]], device=self.llama.device)  # (1, T)
        logits, self.ids = prefill(self.llama, rest, self.cache), ids
        n, self.note = min(self.most, S - len(ids)), ""
        for _ in range(n):
            token = self.choose(logits)  # (1,)
            i = token.item()
            if i in {*t.stop_tokens, t.eot_id, t.eom_id}:
                return
            yield i
            logits = decode_one(self.llama, token, self.cache)  # (1, V)
            self.ids.append(i)
        self.note = f" [stopped after {n} tokens]"

    def fitting_ids(self, question: dict) -> list[int]:
        """Return the ids of the dialogue; forget what has no room, and say so.

        Of the context a quarter is left for the answer.
        """
        S, before = self.cache.max_seq_len, self.messages
        while True:
            ids = self.ids_of([*before, question])
            if len(ids) <= S - min(self.most, S // 4):
                break
            if not before:
                require(len(ids) < S, too_long(len(ids), S))
                break
            before = before[2:]  # a question and its answer
        if forgotten := len(self.messages) - len(before):
            print(f"[the context is full: {forgotten} messages are forgotten]")
            self.messages = before
        return ids

    def ids_of(self, messages: list[dict]) -> list[int]:
        """Return the ids of a dialogue, up to the header of the answer."""
        t, ids = self.llama.tokenizer, list(self.opening)
        for message in messages:
            ids += message_ids(t, message["role"], message["content"])
        return ids + header(t, "assistant")


def too_long(n: int, S: int) -> str:
    """Return the sentence for a message that the context does not hold."""
    return (
        f"the message has {n} tokens with its frame, the context holds {S}: "
        "the message is left out"
    )
