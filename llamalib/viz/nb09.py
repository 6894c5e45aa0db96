r"""Pictures and widget of notebook 09."""

import html
import threading

import ipywidgets as ipw

from ..generate import generate
from . import charts
from .base import canvas
from .model_map import strip  # noqa: F401
from .play import fit

NOTE = "<p><em>A saved text. Run the notebook to type a prompt.</em></p>"


def cost_by_position(positions, series, title, unit):
    """Draw the cost of each new token; two names, the first is grey."""
    fig, ax = canvas(3.2)
    mark = "o-" if len(positions) < 10 else "-"
    charts.lines(ax, series, [("other", mark), ("plain", mark)], positions)
    ax.set_ylim(bottom=0)
    x = "position of the new token"
    return charts.finish(ax, title, x, unit, legend="best")


class Stream(ipw.VBox):
    """A prompt, and its continuation as it grows; it can be stopped."""

    def __init__(
        self, llama, prompt="The capital of France is", max_new_tokens=120
    ):
        self.llama, self.max_new_tokens = llama, max_new_tokens
        self.prompt = ipw.Text(prompt, description="prompt")
        style = dict(step=0.1, description="temperature")
        self.temperature = ipw.FloatSlider(0.0, min=0.0, max=2.0, **style)
        fit(self.prompt)
        fit(self.temperature)
        self.go = ipw.Button(description="continue", icon="play")
        self.stop = ipw.Button(description="stop", icon="stop")
        self.go.on_click(lambda button: self.start())
        self.stop.on_click(lambda button: self._stopped.set())
        self.text, self._stopped = ipw.HTML(), threading.Event()
        buttons = ipw.HBox([self.go, self.stop])
        super().__init__([self.prompt, self.temperature, buttons, self.text])
        self.start()
        self.thread.join()
        self.still = self.text.value

    def start(self) -> None:
        """Continue the prompt in a thread, so that the stop button works."""
        self._stopped.clear()
        self.go.disabled, self.stop.disabled = True, False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        prompt, tokenizer = self.prompt.value, self.llama.tokenizer
        n, temperature, text = self.max_new_tokens, self.temperature.value, ""
        try:
            ids = tokenizer.encode(prompt, bos=True, eos=False)
            options = dict(max_new_tokens=n, temperature=temperature)
            new = generate(self.llama, ids, **options)
            self._show(prompt, text)
            for piece in tokenizer.decode_stream(new):
                if self._stopped.is_set():
                    break
                text += piece
                self._show(prompt, text)
        except ValueError as error:
            self._show(prompt, f" [{error}]")
        finally:
            self.go.disabled, self.stop.disabled = False, True

    def _show(self, prompt, text):
        """Show the prompt, paler, and its continuation."""
        self.text.value = (
            '<div style="white-space: pre-wrap; max-width: 620px">'
            f'<span style="opacity: 0.6">{html.escape(prompt)}</span>'
            f"{html.escape(text)}</div>"
        )

    def __repr__(self) -> str:
        return f"Stream(prompt={self.prompt.value!r})"

    def _repr_mimebundle_(self, **kwargs):
        """Return the live widget, and its first text for a saved notebook."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        page = self.still + NOTE
        return bundle | {"text/html": page, "text/plain": repr(self)}


stream = Stream  # the widget, named as a picture is
