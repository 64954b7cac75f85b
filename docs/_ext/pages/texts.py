"""The site as plain text: Markdown and an `llms.txt` for every page, and the two files for the whole site."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sphinx.application import Sphinx

from pages.markdown import summary_of, title_of

_LINK = re.compile(r"\]\(([^)#\s:]+)\.md(?:#[^)\s]*)?\)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the texts at the end of a build."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    texts = {name: Path(app.env.doc2path(name)).read_text("utf-8") for name in _in_order(app)}
    for name, text in texts.items():
        (app.outdir / f"{name}.md").write_text(text, "utf-8")
        if name != app.config.root_doc:
            folder = app.outdir / address_of(name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "llms.txt").write_text(_of_page(name, texts), "utf-8")
    title = f"# {app.config.project}\n\n> {summary_of(texts[app.config.root_doc])}\n"
    (app.outdir / "llms.txt").write_text(f"{title}\n{_listed(texts.items())}", "utf-8")
    whole = "\n\n".join(f"<!-- {name}.md -->\n\n{text}" for name, text in texts.items())
    (app.outdir / "llms-full.txt").write_text(f"{title}\n{whole}", "utf-8")


def _in_order(app: Sphinx) -> list[str]:
    """Return the names of all pages in the order of the side bar."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in found:
            found[name] = None
            for inner in app.env.toctree_includes.get(name, ()):
                add(inner)

    add(app.config.root_doc)
    return list(found)


def address_of(name: str) -> str:
    """Return a page's address without `.html`. `llms.txt` below it belongs to the page."""
    return os.path.dirname(name) if os.path.basename(name) == "index" else name


def _of_page(name: str, texts: Mapping[str, str]) -> str:
    """Return a page's `llms.txt`: its summary, its Markdown file, and the pages to which it links."""
    text, address = texts[name], address_of(name)
    linked = (os.path.normpath(os.path.join(os.path.dirname(name), link)) for link in _LINK.findall(text))
    listed = [(_from(address, each), texts[each]) for each in dict.fromkeys(linked) if each in texts]
    title = f"# {title_of(text)}\n\n> {summary_of(text)}\n\n"
    page = _listed([(_from(address, name), text)])
    return title + page + (f"\n## Linked pages\n\n{_listed(listed)}" if listed else "")


def _from(address: str, name: str) -> str:
    """Return the relative path of a page's Markdown file, without its suffix."""
    return os.path.relpath(f"{name}.md", address).removesuffix(".md")


def _listed(texts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- [{title_of(text) or name}]({name}.md): {summary_of(text)}\n" for name, text in texts)
