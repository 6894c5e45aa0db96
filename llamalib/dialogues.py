"""How a dialogue becomes ids: Llama 3's headers, or ChatML, as in SmolLM2.

Which it is, the names of the tokenizer's special tokens tell. A template that
a file brings is a program; it is never run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from .checks import require

ROLES = ("system", "user", "assistant", "ipython")  # ipython: a tool's answer
LLAMA3 = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}
CHATML = {"<|im_start|>", "<|im_end|>"}
# Meta's template puts these lines first, from Llama 3.1 on.
DATES = "Cutting Knowledge Date: December 2023\nToday Date: {}\n\n"
PLAIN = {"bos": False, "eos": False}


def is_chatml(tokenizer) -> bool:
    """Return whether dialogues are in ChatML; ValueError if in no known form."""
    names = tokenizer.special_tokens.keys()
    require(
        names >= LLAMA3 or names >= CHATML,
        "the format of this model's dialogues is not known: continue a plain "
        'text with `python -m llamalib run "…"`',
    )
    return not names >= LLAMA3


def header(tokenizer, role: str) -> list[int]:
    """Return the ids that begin a message."""
    text = f"<|start_header_id|>{role}<|end_header_id|>\n\n"
    if is_chatml(tokenizer):
        text = f"<|im_start|>{role}\n"
    return tokenizer.encode(text, **PLAIN, allowed_special="all")


def message_ids(tokenizer, role: str, content: str) -> list[int]:
    """Return the ids of a message; special names in it are plain text."""
    if is_chatml(tokenizer):
        start = tokenizer.special_tokens["<|im_start|>"]
        body = tokenizer.encode(f"{role}\n{content}", **PLAIN)
        return [
            start,
            *body,
            tokenizer.eot_id,
            *tokenizer.encode("\n", **PLAIN),
        ]
    body = tokenizer.encode(content.strip(), **PLAIN)
    return [*header(tokenizer, role), *body, tokenizer.eot_id]


def opening_ids(tokenizer, system: str = "", date: str | None = None):
    r"""Return the ids before the first message of a user.

    system: what the model is told; "": ChatML's usual message, if it has one.
    date: "26 Jul 2024" in Meta's lines of dates, None or "": without them.
    """
    if is_chatml(tokenizer):
        text = system.strip() or tokenizer.system
        return message_ids(tokenizer, "system", text) if text else []
    ids = tokenizer.encode("", bos=True, eos=False)
    text = system.strip()
    if date:
        # message_ids would strip the line breaks after the dates
        text = DATES.format(date) + text
    if text:
        ids += header(tokenizer, "system") + tokenizer.encode(text, **PLAIN)
        ids.append(tokenizer.eot_id)
    return ids


def dialogue_ids(tokenizer, messages: Iterable[Mapping]) -> list[int]:
    """Return the ids of a dialogue; see `Tokenizer.encode_chat`."""
    said = list(checked_messages(messages))
    has_system = said[0][0] == "system"
    ids = tokenizer.encode("", bos=True, eos=False)
    if is_chatml(tokenizer) and not has_system:
        ids = opening_ids(tokenizer)
    for role, content in said:
        ids += message_ids(tokenizer, role, content)
    return ids + header(tokenizer, "assistant")


def usual_system(template: str) -> str:
    """Return the system message that a ChatML template has, or "".

    The template is read as a text.
    """
    pattern = r"<\|im_start\|>system(?:\n|\\n)([^'\"{}<]+)<\|im_end\|>"
    found = re.search(pattern, template)
    return found[1] if found else ""


def checked_messages(messages) -> Iterator[tuple[str, str]]:
    """Yield roles and contents, or raise ValueError."""
    form = '{"role": "user", "content": "Hello"}'
    require(
        isinstance(messages, Iterable)
        and not isinstance(messages, (str, Mapping)),
        f"messages must be a list like [{form}], got {messages!r:.80}",
    )
    messages = list(messages)
    require(messages, f"messages must be a list like [{form}], got none")
    for i, message in enumerate(messages):
        require(
            isinstance(message, Mapping)
            and set(message) == {"role", "content"},
            f"messages[{i}] must be a dict like {form}, got {message!r:.80}",
        )
        role, content = message["role"], message["content"]
        require(
            role in ROLES,
            f"messages[{i}]: role must be one of {', '.join(ROLES)}, got "
            f"{role!r:.80}",
        )
        require(
            isinstance(content, str),
            f"messages[{i}]: content must be a str, got {content!r:.80}",
        )
        yield role, content
