r"""Controls over a picture that follows them."""

import base64
import gc
import html

import ipywidgets as ipw

from .base import png


class Play(ipw.VBox):
    r"""Controls, and under them the picture that they draw.

    Args:
        draw: called with the controls' values by name; returns a figure.
        controls: name to ipywidgets control, shown in this order.

    Attributes:
        controls: as given: `play.controls["layer"].value = 2` is what a
            reader's hand does.
        picture: an ipywidgets Image, PNG.
        message: an HTML line, where `draw` raised a ValueError: what it says.
    """

    def __init__(self, draw, **controls):
        self.draw, self.controls = draw, controls
        self.picture = ipw.Image(format="png", layout={"max_width": "100%"})
        self.message = ipw.HTML()
        for control in controls.values():
            control.style.description_width = "initial"
            control.layout.width = "90%"
            control.layout.max_width = "620px"
            control.observe(self._changed, "value")
        super().__init__([*controls.values(), self.message, self.picture])
        self.update()

    def update(self) -> None:
        """Draw with the controls' values as they are now."""
        values = {name: c.value for name, c in self.controls.items()}
        collecting = gc.isenabled()
        gc.disable()  # a collection takes longer than a picture: after it
        try:
            fig = self.draw(**values)
            self.message.value = ""
            self.picture.value = png(fig)
        except ValueError as error:  # the picture before stays
            self.message.value = html.escape(str(error))
        finally:
            if collecting:
                gc.enable()

    def _changed(self, change):
        self.update()

    def __repr__(self) -> str:
        values = (f"{n}={c.value!r}" for n, c in self.controls.items())
        return f"Play({', '.join(values)})"

    def _repr_mimebundle_(self, **kwargs):
        """The live widget, and a still picture where there is no kernel."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        still = base64.b64encode(self.picture.value).decode()
        return bundle | {"image/png": still, "text/plain": repr(self)}


def log_slider(description: str, value: float, low: int, high: int):
    """A slider over powers of ten, from 10^low to 10^high."""
    return ipw.FloatLogSlider(
        value=value,
        min=low,
        max=high,
        step=0.1,
        description=description,
        readout_format=".1e",
    )
