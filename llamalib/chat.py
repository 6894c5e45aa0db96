"""Talk to an Instruct model in a terminal; each turn runs only what is new."""

import datetime as dt
import sys

import torch

from .cache import KVCache
from .checks import check_sampling, check_seed, is_count, require
from .generate import decode_one, prefill
from .load import describe, load
from .sampling import make_sampler

HELP = "/new begins a new conversation, /bye or Ctrl-D ends, Ctrl-C interrupts"
# Meta's template puts these lines first, from Llama 3.1 on.
DATES = "Cutting Knowledge Date: December 2023\nToday Date: {}\n\n"


def talk(folder, system, date, seed, max_new_tokens, context, **sampling):
    """Read messages and print answers until the input ends."""
    require(sys.stdin, "standard input must be a terminal, a file or a pipe")
    check_sampling(**sampling)
    check_seed(seed)
    llama = load(folder)
    check_trained(llama)
    if date is None:  # not given: today's, from Llama 3.1 on
        date = f"{dt.date.today():%d %b %Y}" * llama.config.use_scaled_rope
    # 0.9: as in the generation_config.json of Meta's Instruct models
    choose = make_sampler(llama.device, seed, top_p=0.9, **sampling)
    opening = opening_ids(llama.tokenizer, system, date)
    chat = Chat(llama, choose, opening, max_new_tokens, context)
    print(f"{describe(llama)}\n{HELP}")
    text = ""
    while text.lower() != "/bye":
        try:
            text = input("\nyou> ").strip()
            if text.lower() == "/new":
                chat.messages.clear()
            elif text.lower() == "/help":
                print(HELP)
            elif text.lower() not in ("", "/bye"):
                chat.reply(text)
        except EOFError:
            return print()
        except KeyboardInterrupt:
            print(" [interrupted]")
        except ValueError as error:  # such as a full context
            print(f"[{error}]")


def check_trained(llama) -> None:
    """Raise ValueError if a model does not know Llama 3's conversations.

    Embeddings of tokens that no text held stay close together (seen in the
    pocket Llama, reported of Llama 3, not verified on 3.2).
    """
    t, why = llama.tokenizer, None
    if t.eot_id is None:
        why = "its tokenizer has no <|eot_id|>"
    elif t.eot_id not in t.stop_tokens:
        why = "its files do not list <|eot_id|> among the stop tokens"
    else:
        unused = [i for n, i in t.special_tokens.items() if "reserved" in n]
        ids = torch.tensor([t.eot_id, *unused], device=llama.device)
        rows = llama.tok_embeddings.weight[ids].float()  # (n, D)
        far = (rows - rows[1:].mean(0)).norm(dim=-1)  # (n,)
        if unused and far[0] <= 2 * far[1:].median():
            why = "the embedding of <|eot_id|> is that of an unused token"
    if why:
        raise ValueError(
            f"{llama.name} was not trained for Llama 3's conversations "
            f"({why}): name the folder of an Instruct model, or continue a "
            "text with "
            '`python -m llamalib run "…"`'
        )


class Chat:
    """A conversation: its messages, and the ids and KV cache of its tokens.

    opening: the ids before the first message.
    most: the largest number of tokens in an answer.
    context: the capacity of the cache; None: 4,096, or what the model holds.
    """

    def __init__(self, llama, choose, opening, most, context=None):
        require(
            is_count(most),
            f"max_new_tokens must be a whole number >= 1, got {most!r:.80}",
        )
        shortest = llama.tokenizer.encode_chat(
            [{"role": "user", "content": "a"}]
        )
        least = len(opening) + len(shortest)
        top = llama.config.context_length
        context = min(4096, top) if context is None else context
        require(
            least <= context <= top,
            f"context must be from {least} to {top}, got {context}",
        )
        self.llama, self.choose, self.opening = llama, choose, opening
        self.messages, self.most, self.ids = [], most, []
        like = {"device": llama.device, "dtype": llama.dtype}
        self.cache = KVCache(llama.config, context, **like)

    def reply(self, text: str) -> None:
        """Print the answer to a message; keep both if there is an answer."""
        question, answer = {"role": "user", "content": text}, ""
        try:
            ids = self.run(question)
            for piece in self.llama.tokenizer.decode_stream(ids):
                answer += piece
                print(piece, end="", flush=True)
            print(self.note)
        finally:  # an interrupted answer is kept as far as it came
            if answer:
                said = {"role": "assistant", "content": answer}
                self.messages += [question, said]

    @torch.inference_mode()
    def run(self, question: dict):
        """Yield the answer's ids, up to its stop token."""
        t, S = self.llama.tokenizer, self.cache.max_seq_len
        ids = self.opening + t.encode_chat([*self.messages, question])[1:]
        if len(ids) >= S:
            raise ValueError(
                f"the conversation would have {len(ids)} tokens, the context "
                f"holds {S}: the message is left out; /new begins a new one"
            )
        same = [a == b for a, b in zip(ids[:-1], self.ids)]
        kept = [*same, False].index(False)  # their keys stay in the cache
        self.ids = ids[:kept]
        self.cache.advance(kept - self.cache.length)  # back to what is kept
        new = torch.tensor([ids[kept:]], device=self.llama.device)  # (1, T)
        logits, self.ids = prefill(self.llama, new, self.cache), ids
        room = min(self.most, S - len(ids))
        full = f"the context of {S} tokens is full: /new begins a new one"
        self.note = f" [{full if room < self.most else f'{room} tokens'}]"
        for _ in range(room):
            token = self.choose(logits)  # (1,)
            if token.item() in {*t.stop_tokens, t.eot_id, t.eom_id}:
                self.note = ""
                return
            yield token.item()
            logits = decode_one(self.llama, token, self.cache)  # (1, V)
            self.ids = [*self.ids, token.item()]


def opening_ids(tokenizer, system: str, date: str) -> list[int]:
    """Return the ids before the first message; date "" leaves DATES out."""
    text = DATES.format(date) * bool(date) + system.strip()
    empty = tokenizer.encode_chat([{"role": "system", "content": ""}])
    end = empty.index(tokenizer.eot_id) if text else 1
    body = tokenizer.encode(text, bos=False, eos=False)
    return empty[:end] + body + [tokenizer.eot_id] * bool(text)
