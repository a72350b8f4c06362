"""Sphinx's settings for the book. ``build_book`` sets the variables that are read here."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = str(HERE / "_static" / "mark.svg")
sys.path.insert(0, str(HERE.parent))

from book.launch import launch  # noqa: E402

project = "Attention Ledger"
author = "The Attention Ledger contributors"
copyright = f"{author}. Code under MIT, text under CC BY 4.0"
language = "en"
extensions = ["myst_nb", "sphinx.ext.githubpages"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_block"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = os.environ["BOOK_EXECUTED"]
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

# The same files online and offline: MathJax and its font lie beside the pages.
mathjax_path = "mathjax/tex-chtml.js"
mathjax4_config = {
    "loader": {"paths": {"fonts": "[mathjax]/fonts"}},
    "options": {"enableMenu": False, "menuOptions": {"settings": {"enrich": True}}},
    "output": {"displayOverflow": "linebreak", "mtextInheritFont": True},
}

highlight_language = "none"
html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static", os.environ["BOOK_STATIC"]]
html_css_files = ["book.css"]
html_favicon = MARK
html_context = {"default_mode": "auto"}
html_use_index = False
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"**": ["course.html"]}
html_theme_options = {
    "logo": {"text": project, "image_light": MARK, "image_dark": MARK, "alt_text": ""},
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "primary_sidebar_end": [],
    "article_header_start": [],
    "article_header_end": ["launch.html"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "models": [], "machines": []},
    "search_bar_text": "Search the book",
    "search_as_you_type": True,
    "show_toc_level": 1,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def with_alternatives(render):
    """A notebook's picture with the words that describe it: myst-nb takes an output's size, but not its ``alt``."""

    def render_image(self, data):
        (image,) = render(self, data)
        if alt := data.output_metadata.get(data.mime_type, {}).get("alt"):
            image["alt"] = alt
        return [image]

    return render_image


def setup(app):
    """Describe pictures in words, and give each page what it can be opened with."""
    from myst_nb.core.render import NbElementRenderer

    NbElementRenderer.render_image = with_alternatives(NbElementRenderer.render_image)
    root, offline = Path(os.environ["BOOK_ROOT"]), bool(os.environ["BOOK_OFFLINE"])

    def context(app, pagename, templatename, context, doctree):
        context["launch"] = launch(root, pagename, offline)
        # A fold says what it folds; the label that myst-nb puts over its words says less.
        context["body"] = context.get("body", "").replace(' aria-label="Toggle hidden content"', "")

    app.connect("html-page-context", context)
