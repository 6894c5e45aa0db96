r"""Pictures and widgets, one file a notebook: `from llamalib.viz import nb05`.

The only room that imports matplotlib and ipywidgets.
"""

import logging

# "Matplotlib is building the font cache" is no part of a lesson
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
