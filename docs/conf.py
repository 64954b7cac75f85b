"""Settings of Sphinx for the documentation. `make docs` builds it."""

from pygments.lexers import JsonLexer
from sphinx.highlighting import lexers

from nemo_gym import __version__

project = "nemo_gym"
author = "the authors of nemo_gym"
version = release = __version__
extensions = ["myst_parser", "sphinx_design", "pages.texts"]
root_doc = "index"
exclude_patterns = ["files"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
# Anchors such as #the-sandbox, as code hosts make them.
myst_heading_anchors = 4
myst_links_external_new_tab = True
nitpicky = False
default_role = "code"
highlight_language = "none"
lexers["jsonl"] = JsonLexer()
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = "nemo_gym"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# No page asks another host, and search works for pages that are opened from disk.
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3a6b00", "color-brand-content": "#2f6a00"},
    "dark_css_variables": {"color-brand-primary": "#9ad14b", "color-brand-content": "#9ad14b"},
}
