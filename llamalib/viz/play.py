r"""Controls over a picture that follows them."""

import base64
import gc
import html

import ipywidgets as ipw

from .base import png


class Play(ipw.VBox):
    r"""Controls, and below them the picture that they draw.

    Args:
        draw: called with the controls' values by name; returns a figure.
        controls: name to ipywidgets control, shown in this order.

    Attributes:
        controls: as given; `play.controls["layer"].value = 2` simulates a
            user who moves the slider.
        picture: an ipywidgets Image, PNG.
        message: an HTML line: the text of a ValueError that `draw` raised.
    """

    def __init__(self, draw, **controls):
        self.draw, self.controls = draw, controls
        self.picture = ipw.Image(format="png", layout={"max_width": "100%"})
        self.message = ipw.HTML()
        for control in controls.values():
            fit(control)
            control.observe(lambda change: self.update(), "value")
        super().__init__([*controls.values(), self.message, self.picture])
        self.update()

    def update(self) -> None:
        """Draw the picture of the controls' present values."""
        values = {name: c.value for name, c in self.controls.items()}
        collecting = gc.isenabled()
        gc.disable()  # a full collection may take longer than a picture
        try:
            self.picture.value = png(self.draw(**values))
            self.message.value = ""
        except ValueError as error:  # the last picture stays
            self.message.value = html.escape(str(error))
        finally:
            if collecting:
                gc.enable()

    def __repr__(self) -> str:
        values = (f"{n}={c.value!r}" for n, c in self.controls.items())
        return f"Play({', '.join(values)})"

    def _repr_mimebundle_(self, **kwargs):
        """Return the live widget, and a still picture without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        still = base64.b64encode(self.picture.value).decode()
        return bundle | {"image/png": still, "text/plain": repr(self)}


def fit(control) -> None:
    """Give a control room for its description, and a width."""
    control.style.description_width = "initial"
    control.layout.width = "90%"
    control.layout.max_width = "620px"


def log_slider(description: str, value: float, low: int, high: int):
    """Return a slider over powers of ten, from 10^low to 10^high."""
    return ipw.FloatLogSlider(
        value=value,
        min=low,
        max=high,
        step=0.1,
        description=description,
        readout_format=".1e",
    )


def token_texts(llama, ids) -> list[str]:
    """Return the text of each token id."""
    return [llama.tokenizer.decode([i]) for i in ids]
