"""The site as plain text: a Markdown file next to every page, and the two files for language models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx

from pages.markdown import summary_of, title_of


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


def _listed(texts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- [{title_of(text) or name}]({name}.md): {summary_of(text)}\n" for name, text in texts)
