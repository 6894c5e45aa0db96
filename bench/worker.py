r"""One peer in a process of its own, which does what it is told.

`generation.py` starts it, writes a command a line as JSON, and reads an
answer a line: {"ok": …}, {"missing": why} or {"error": what}. Only one
worker works at a time, so that none disturbs another; each has its own
memory, whose peak is its own.
"""

import gc
import json
import os
import re
import sys
import time
from itertools import pairwise

import peers
import torch

now = time.perf_counter


def status_bytes(field: str) -> int | None:
    """VmHWM, VmRSS, … of this process; None where there is no Linux."""
    try:
        text = open("/proc/self/status").read()
    except OSError:
        return None
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", text)[1])


def vocabulary_ids(n: int, start: int = 10) -> list[int]:
    """n ids that every checkpoint here has; another start, others."""
    return [start + 7 * i % 239 for i in range(n)]


class Worker:
    """The commands, each a method; what it returns is the answer."""

    peer = None

    def load(self, peer, **where):
        """Open a peer: seconds."""
        self.device = where["device"]
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        peers.PEERS[peer].package()
        start = now()
        self.peer = peers.PEERS[peer](**where)
        self.wait()
        return {"seconds": now() - start}

    def wait(self):
        """Until a GPU has done what it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def wake(self):
        """Two ids that are not timed: while others had their turn, a system
        may have put this one's memory away."""
        list(self.peer.generate(vocabulary_ids(2), 2))

    def answer(self, prompt, forced):
        """What must agree: logits after a prompt and after each of more
        ids, that are not its own, and the id that it would go on with."""
        (first,) = self.peer.generate(prompt, 1)
        found = {"id": first, "logits": []}
        try:
            self.peer.start(1, len(prompt) + 4)
        except peers.NotMeasured:  # no cache: its id alone
            return found
        logits = self.peer.prefill_logits([prompt])
        for token in [*forced, None]:
            rounded = [round(x, 4) for x in logits[0].tolist()]
            found["logits"].append(rounded)
            if token is not None:
                ids = 0 * logits.argmax(-1) + token  # of the peer's own kind
                logits = self.peer.step_logits(ids)
        return found

    def generate(self, prompt, n, awake=True):
        """Seconds to the first of n ids; tokens/s of the others."""
        if awake:
            self.wake()
        start = now()
        times = [now() for _ in self.peer.generate(prompt, n)]
        return {
            "first": times[0] - start,
            "decode": (n - 1) / (times[-1] - times[0]),
        }

    def prefill(self, length):
        """Seconds from a prompt of so many ids to the next id."""
        prompt = vocabulary_ids(length)
        self.wake()
        start = now()
        self.peer.start(1, length + 1)
        self.peer.prefill([prompt]).tolist()
        return {"seconds": now() - start}

    def decode_at(self, position, n):
        """tokens/s of n steps behind so many positions of one row."""
        self.peer.start(1, position + n + 2)
        self.peer.fill(position)
        return self.steps([[100]], n)

    def batch(self, rows, prompt_length, n):
        """tokens/s of all rows together, n steps after a short prompt."""
        self.peer.start(rows, prompt_length + n + 2)
        prompts = [
            vocabulary_ids(prompt_length, start=10 + row)
            for row in range(rows)
        ]
        return self.steps(prompts, n)

    def steps(self, prompts, n):
        """Prefill and two steps, not timed; then n, each waited for."""
        ids = self.peer.prefill(prompts)
        ids = self.peer.step(ids)
        ids.tolist()
        times = [now()]
        for _ in range(n):
            ids = self.peer.step(ids)
            ids.tolist()
            times.append(now())
        # the median of the steps: one that was disturbed does not count
        took = sorted(b - a for a, b in pairwise(times))[n // 2]
        return {"decode": len(prompts) / took}

    def repeat(self, prompt, n, times):
        """Bytes by which memory grows over so many generations."""
        for _ in range(10):  # what is allocated once
            list(self.peer.generate(prompt, n))
        gc.collect()
        before = status_bytes("VmRSS")
        for _ in range(times):
            list(self.peer.generate(prompt, n))
        gc.collect()
        if before is None:
            raise peers.NotMeasured("memory is read where Linux shows it")
        return {"grown": status_bytes("VmRSS") - before}

    def cache(self, length):
        """Bytes of a cache with room for so many positions."""
        self.peer.start(1, length)
        return {"bytes": self.peer.cache_bytes()}

    def peak(self):
        """Bytes, the most that this process, or it on the GPU, has held."""
        if self.device == "cuda":
            return {"bytes": torch.cuda.max_memory_allocated()}
        found = status_bytes("VmHWM")
        if found is None:
            raise peers.NotMeasured("memory is read where Linux shows it")
        return {"bytes": found}

    def bandwidth(self, device, threads):
        """Bytes a second that this machine reads."""
        from llamalib.roofline import memory_bandwidth

        torch.set_num_threads(threads)
        return {"bytes_per_s": memory_bandwidth(device)}


def obey(worker, command: dict) -> dict:
    """What to answer to a command."""
    do = command.pop("do")
    try:
        # weights made in inference mode could not be laid out anew
        with torch.inference_mode(do != "load"):
            return {"ok": getattr(worker, do)(**command)}
    except peers.NotMeasured as why:
        return {"missing": str(why)}
    except Exception as error:  # one peer's failure is one row
        lines = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:200]}"}


def main():
    # what a library prints must not come between the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        print(json.dumps(obey(worker, json.loads(line))), file=answers)
        answers.flush()


if __name__ == "__main__":
    main()
