"""A generation that is stopped leaves the model as it was."""

import pytest
import torch

import llamalib
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
