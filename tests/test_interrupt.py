"""A generation that is stopped leaves the model as it was."""

import subprocess
import sys

import pytest
import torch

import llamalib
from llamalib.load import ROOT
from tests.helpers import random_llama

PROMPT = [1, 2, 3]


def greedy(llama, n=12, **how):
    new = llamalib.generate(llama, PROMPT, max_new_tokens=n, stop=(), **how)
    return list(new)


def test_wherever_it_is_interrupted(monkeypatch):
    """In every operation of a decode step, one after another."""
    llama = random_llama()
    expected, at = greedy(random_llama()), 0
    operations, silu = [0], torch.nn.functional.silu
    linear = torch.nn.functional.linear

    def counted(function):
        def run(*args):
            operations[0] += 1
            if operations[0] == at:
                raise KeyboardInterrupt
            return function(*args)

        return run

    onednn = torch.backends.mkldnn.enabled
    threads = torch.get_num_threads()
    for place in range(1, 60):
        at, operations[0] = place, 0
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.functional, "silu", counted(silu))
            patch.setattr(torch.nn.functional, "linear", counted(linear))
            with pytest.raises(KeyboardInterrupt):
                greedy(llama)
        assert torch.backends.mkldnn.enabled == onednn
        assert torch.get_num_threads() == threads
    assert greedy(llama) == expected
    batch = llamalib.generate_batch(
        llama, [PROMPT, PROMPT], max_new_tokens=12, stop=()
    )
    assert batch == [expected, expected]


def test_left_in_the_middle():
    """Not interrupted, but never asked for the rest."""
    llama = random_llama()
    expected = greedy(llama)
    started = []
    for n in range(1, 5):
        new = llamalib.generate(llama, PROMPT, max_new_tokens=12)
        started.append([next(new) for _ in range(n)])
        if n % 2:
            new.close()
    assert started == [expected[:n] for n in range(1, 5)]
    assert greedy(llama) == expected


SIGNALS = r"""
import os, random, signal, sys, threading, time
import torch, llamalib
llama = llamalib.load(device="cpu", dtype=getattr(torch, sys.argv[1]))
ids = llama.tokenizer.encode("Once upon a time", bos=True, eos=False)
def greedy(n):
    return list(llamalib.generate(llama, ids, max_new_tokens=n, stop=()))
expected, chance, stopped = greedy(30), random.Random(0), 0
for _ in range(25):
    wait = chance.uniform(0.001, 0.05)
    me = os.getpid(), signal.SIGINT
    timer = threading.Timer(wait, os.kill, me)
    timer.start()
    try:
        greedy(400)
        timer.join()
        time.sleep(0.01)
    except KeyboardInterrupt:
        stopped += 1
    timer.join()
    assert greedy(30) == expected
    assert torch.backends.mkldnn.enabled
print("stopped", stopped)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_control_c(pocket_folder, monkeypatch, dtype):
    """As a terminal sends it, and the kernel's stop button."""
    monkeypatch.setenv("LLAMA_DIR", str(pocket_folder))
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS, dtype],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 20


def test_the_kernels_stop_button(pocket_folder, monkeypatch):
    """In a notebook: the cell ends, the next one gives the same ids."""
    from jupyter_client.manager import start_new_kernel

    monkeypatch.setenv("LLAMA_DIR", str(pocket_folder))
    manager, client = start_new_kernel()

    def run(code):
        reply = client.execute_interactive(
            code, timeout=60, store_history=False, output_hook=said.append
        )
        return reply["content"]

    said = []
    try:
        run(
            "import llamalib\n"
            "llama = llamalib.load(device='cpu')\n"
            "ids = llama.tokenizer.encode('One', bos=True, eos=False)\n"
            "def greedy(n):\n"
            "    how = dict(max_new_tokens=n, stop=())\n"
            "    return list(llamalib.generate(llama, ids, **how))\n"
            "expected = greedy(20)\n"
        )
        import threading

        button = threading.Timer(0.5, manager.interrupt_kernel)
        button.start()
        stopped = run("while True:\n    greedy(500)")
        assert stopped["ename"] == "KeyboardInterrupt"
        assert run("assert greedy(20) == expected")["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
