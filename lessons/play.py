r"""Controls over a picture that follows them."""

import gc
import html

import ipywidgets as ipw

from .theme import alt_text, image_tag, png, sharp_png

STILL = "A still picture. Run the notebook up to here to move the controls."
LIVE_DPI = 150  # sharper than a page, and drawn as fast
# Without a kernel a control changes nothing: a note is shown instead of it.
# ipywidgets marks a widget whose kernel was restarted or is of another day;
# if the kernel was shut down, only JupyterLab's toolbar tells.
ALONE = (
    ":is(.lesson.jupyter-widgets-disconnected, "
    '.jp-NotebookPanel:has([data-status="unknown"]) .lesson)'
)
STYLE = f"""<style>
{ALONE} > :not(.widget-html), .lesson:not({ALONE}) > .note,
{ALONE}::before, {ALONE} > ::before {{ display: none }}
</style>"""


class Lesson(ipw.VBox):
    """Controls and what they show; without a kernel, a note replaces them."""

    def __init__(self, children, note):
        note = ipw.HTML(f"{STYLE}<em>{note}</em>")
        note.add_class("note")
        super().__init__([note, *children])
        self.add_class("lesson")


class Play(Lesson):
    """Controls, and below them the picture that they draw.

    draw: returns a figure for the controls' values, passed by name. Its
    ValueError is shown as `message`. `play.controls["layer"].value = 2`
    simulates a user who moves the slider.
    """

    def __init__(self, draw, **controls):
        self.draw, self.controls = draw, controls
        self.picture = ipw.HTML()  # an image widget has no alternative text
        self.message = ipw.HTML()
        fit(*controls.values())
        for control in controls.values():
            control.observe(lambda change: self.update(), "value")
        shown = self.message, self.picture
        super().__init__([*controls.values(), *shown], STILL)
        self.update()

    def figure(self):
        """Return the figure of the controls' present values."""
        return self.draw(**{n: c.value for n, c in self.controls.items()})

    def update(self) -> None:
        """Show the picture of the controls' present values."""
        collecting = gc.isenabled()
        gc.disable()  # a full collection may take longer than a picture
        try:
            fig = self.figure()
            self.picture.value = image_tag(png(fig, LIVE_DPI), alt_text(fig))
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
        fig = self.figure()
        alt = alt_text(fig)
        page = f"{image_tag(sharp_png(fig), alt)}<p><em>{STILL}</em></p>"
        bundle |= {"text/html": page, "text/plain": repr(self)}
        return bundle, {"text/html": {"alt": alt}}


def fit(*controls) -> None:
    """Give controls a width, and their descriptions as much room each."""
    widest = max(len(control.description) for control in controls)
    for control in controls:
        control.style.description_width = f"{widest + 1}ch"
        control.layout.width = "90%"
        control.layout.max_width = "620px"


def token_texts(llama, ids) -> list[str]:
    """Return the text of each token id."""
    return [llama.tokenizer.decode([i]) for i in ids]
