"""How Sphinx makes the site; `python site/build.py` runs it."""

import sys
from pathlib import Path

SITE = Path(__file__).parent
sys.path.insert(0, str(SITE))

project = "Llama, notebook by notebook"
extensions = ["myst_nb", "sphinx_copybutton", "book.extension"]
source_suffix = {".ipynb": "myst-nb", ".md": "myst-nb"}
language = "en"
smartquotes = False  # the texts are typed as they should be

nb_execution_mode = "off"  # the outputs are those that were committed
nb_render_markdown_format = "myst"
nb_ipywidgets_js = {}  # which would come from another origin
nb_code_prompt_show = "Show the check"
nb_code_prompt_hide = "Hide the check"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

html_theme = "furo"
html_title = project
html_math_renderer = "mathml"
html_favicon = "favicon.svg"
html_css_files = ["site.css"]
# copied as they are: a script, styles; the notebooks
html_static_path = [str(SITE / "search.js"), *map(str, SITE.glob("*.css"))]
html_extra_path = ["../notebooks"]
exclude_patterns = ["**index.ipynb", "**.ipynb_checkpoints", "explorer.html"]
html_use_index = html_copy_source = html_show_sourcelink = False
html_show_sphinx = html_show_copyright = False
html_theme_options = {"navigation_with_keys": False}
# of code, never of what it printed
copybutton_selector = ".cell_input pre, .highlight-python pre"
suppress_warnings = ["myst.header"]  # a README may skip a level
