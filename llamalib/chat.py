"""Talk to an Instruct model in a terminal; each turn runs only what is new."""

import datetime

import torch

from .cache import KVCache
from .checks import check_sampling, check_seed, is_count, printable, require
from .generate import decode_one, prefill
from .load import describe, load
from .sampling import make_sampler

HELP = "/new begins a new conversation, /bye or Ctrl-D ends, Ctrl-C interrupts"
# Meta's template puts these lines first, from Llama 3.1 on.
DATES = "Cutting Knowledge Date: December 2023\nToday Date: {}\n\n"


def talk(folder, system, date, seed, max_new_tokens, context, **sampling):
    """Read messages and print answers until the input ends."""
    check_sampling(**sampling)
    check_seed(seed)
    llama = load(folder)
    check_trained(llama)
    if date is None and llama.config.use_scaled_rope:  # Llama 3.1 or later
        date = f"{datetime.date.today():%d %b %Y}"
    # 0.9: as in the generation_config.json of Meta's Instruct models
    choose = make_sampler(llama.device, seed, top_p=0.9, **sampling)
    opening = opening_ids(llama.tokenizer, system, date)
    chat = Chat(llama, choose, opening, max_new_tokens, context)
    print(f"{describe(llama)}\n{HELP}")
    while True:
        try:
            text = input("\nyou> ").strip()
            if text.lower() == "/bye":
                return
            if text.lower() == "/new":
                chat.messages.clear()
            elif text:
                chat.reply(text)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print(" [interrupted]")
        except ValueError as error:  # such as a full context
            print(f"[{error}]")


def check_trained(llama) -> None:
    """Raise ValueError if a model does not know Llama 3's conversations.

    Embeddings of tokens that no text held stay close together (seen in the
    pocket Llama, reported of Llama 3, not verified on 3.2).
    """
    t, why = llama.tokenizer, ""
    if t.eot_id not in t.stop_tokens:  # or None: another family's tokenizer
        why = "<|eot_id|> is not among its stop tokens"
    elif unused := [i for n, i in t.special_tokens.items() if "reserved" in n]:
        rows = llama.tok_embeddings.weight[[t.eot_id, *unused]].float()
        far = (rows - rows[1:].mean(0)).norm(dim=-1)
        if far[0] <= 2 * far[1:].median():
            why = "the embedding of <|eot_id|> is that of an unused token"
    require(
        not why,
        f"{llama.name} was not trained for Llama 3's conversations ({why}): "
        "name the folder of an Instruct model, or continue a text with "
        '`python -m llamalib run "…"`',
    )


def opening_ids(tokenizer, system: str, date: str | None) -> list[int]:
    """Return the ids before the first message; without a date, no DATES."""
    text = system.strip()
    if date:
        text = DATES.format(date) + text
    if not text:
        return [tokenizer.bos_id]
    empty = tokenizer.encode_chat([{"role": "system", "content": ""}])
    header = empty[: empty.index(tokenizer.eot_id)]
    # encode_chat would strip the line breaks after the dates
    body = tokenizer.encode(text, bos=False, eos=False)
    return [*header, *body, tokenizer.eot_id]


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
        ids = self.opening + t.encode_chat([*self.messages, question])[1:]
        if len(ids) >= S:
            raise ValueError(
                f"the conversation would have {len(ids)} tokens, the context "
                f"holds {S}: the message is left out; /new begins a new one"
            )
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
