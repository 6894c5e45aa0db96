r"""Run one peer in a process of its own, and obey commands.

`generation.py` starts it, writes one command a line as JSON, and reads one
answer a line: {"ok": …}, {"missing": why} or {"error": what}. Only one
worker runs at a time, so that none disturbs another. Each has its own
memory, whose peak it reports.
"""

import gc
import json
import os
import re
import sys
import time
from itertools import pairwise

import torch

from bench import peers

now = time.perf_counter


def status_bytes(field: str) -> int | None:
    """Return VmHWM, VmRSS, … of this process; None except on Linux."""
    try:
        text = open("/proc/self/status").read()
    except OSError:
        return None
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", text)[1])


def vocabulary_ids(n: int, start: int = 10) -> list[int]:
    """Return n ids that every checkpoint here has, different by start."""
    return [start + 7 * i % 239 for i in range(n)]


class Worker:
    """One peer; each command is a method, whose result is the answer."""

    peer = None

    def load(self, peer, **where):
        """Open a peer and return the seconds."""
        self.device = where["device"]
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        peers.PEERS[peer].package()
        start = now()
        self.peer = peers.PEERS[peer](**where)
        self.wait()
        return {"seconds": now() - start}

    def wait(self):
        """Wait until a GPU has finished."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def wake(self):
        """Generate two ids, not timed: this process may be swapped out."""
        list(self.peer.generate(vocabulary_ids(2), 2))

    def answer(self, prompt, forced):
        """Return what must agree between peers.

        Logits after a prompt and after each of the `forced` ids, and the
        first greedy id.
        """
        (first,) = self.peer.generate(prompt, 1)
        found = {"id": first, "logits": []}
        try:
            self.peer.start(1, len(prompt) + 4)
        except peers.NotMeasured:  # it has no cache: only its id
            return found
        logits = self.peer.prefill_logits([prompt])
        for token in [*forced, None]:
            rounded = [round(x, 4) for x in logits[0].tolist()]
            found["logits"].append(rounded)
            if token is not None:
                ids = 0 * logits.argmax(-1) + token  # array or tensor
                logits = self.peer.step_logits(ids)
        return found

    def generate(self, prompt, n, awake=True):
        """Return seconds to the first of n ids, and tokens/s of the rest."""
        if awake:
            self.wake()
        start = now()
        times = [now() for _ in self.peer.generate(prompt, n)]
        return {
            "first": times[0] - start,
            "decode": (n - 1) / (times[-1] - times[0]),
        }

    def prefill(self, length):
        """Return the seconds from a prompt of `length` ids to the next."""
        prompt = vocabulary_ids(length)
        self.wake()
        start = now()
        self.peer.start(1, length + 1)
        self.peer.prefill([prompt]).tolist()
        return {"seconds": now() - start}

    def decode_at(self, position, n):
        """Return tokens/s of n steps of one row, from `position` on."""
        self.peer.start(1, position + n + 2)
        self.peer.fill(position)
        return self.steps([[100]], n)

    def batch(self, rows, prompt_length, n):
        """Return tokens/s of all rows together, n steps after a prompt."""
        self.peer.start(rows, prompt_length + n + 2)
        prompts = [
            vocabulary_ids(prompt_length, start=10 + row)
            for row in range(rows)
        ]
        return self.steps(prompts, n)

    def steps(self, prompts, n):
        """Prefill and step twice, not timed; then time n steps."""
        ids = self.peer.prefill(prompts)
        ids = self.peer.step(ids)
        ids.tolist()
        times = [now()]
        for _ in range(n):
            ids = self.peer.step(ids)
            ids.tolist()
            times.append(now())
        # the median, so that a disturbed step does not count
        took = sorted(b - a for a, b in pairwise(times))[n // 2]
        return {"decode": len(prompts) / took}

    def repeat(self, prompt, n, times):
        """Return the bytes by which memory grows over many generations."""
        for _ in range(10):  # allocate what is allocated once
            list(self.peer.generate(prompt, n))
        gc.collect()
        before = status_bytes("VmRSS")
        for _ in range(times):
            list(self.peer.generate(prompt, n))
        gc.collect()
        if before is None:
            raise peers.NotMeasured("memory is measured on Linux only")
        return {"grown": status_bytes("VmRSS") - before}

    def cache(self, length):
        """Return the bytes of a cache with room for `length` positions."""
        self.peer.start(1, length)
        return {"bytes": self.peer.cache_bytes()}

    def peak(self):
        """Return the most bytes that this process has held, on its device."""
        if self.device == "cuda":
            return {"bytes": torch.cuda.max_memory_allocated()}
        found = status_bytes("VmHWM")
        if found is None:
            raise peers.NotMeasured("memory is measured on Linux only")
        return {"bytes": found}

    def bandwidth(self, device, threads):
        """Return the bytes per second that this machine reads."""
        from llamalib import memory_bandwidth

        torch.set_num_threads(threads)
        return {"bytes_per_s": memory_bandwidth(device)}


def obey(worker, command: dict) -> dict:
    """Run a command and return the answer."""
    do = command.pop("do")
    try:
        # a model is loaded as its user loads it: no inference tensors
        with torch.inference_mode(do != "load"):
            return {"ok": getattr(worker, do)(**command)}
    except peers.NotMeasured as why:
        return {"missing": str(why)}
    except Exception as error:  # one peer's failure is one row
        lines = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:200]}"}


def main():
    """Answer the commands on stdin, one a line."""
    # a library's prints go to stderr, so that only answers are on stdout
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        print(json.dumps(obey(worker, json.loads(line))), file=answers)
        answers.flush()


if __name__ == "__main__":
    main()
