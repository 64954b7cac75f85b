"""The documentation site, built as `make docs` builds it: complete, without broken links, from this machine alone."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import nemo_gym
from nemo_gym.cli.commands import COMMANDS
from nemo_gym.cli.main import main
from nemo_gym.config.run_settings import TOP_LEVEL_KEYS
from nemo_gym.data import catalog

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(REPOSITORY / "docs" / "_ext"))

from pages.commands import title_of  # noqa: E402 - found by the line above

pytestmark = pytest.mark.slow

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""The elements that a browser loads, each with the attribute that says from where."""
GOALS = yaml.safe_load((REPOSITORY / "docs" / "goals.yaml").read_text("utf-8"))
CLICKS = 2
STYLE_URL = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s")


class Site(NamedTuple):
    """A built site."""

    folder: Path

    def text(self, page: str) -> str:
        return (self.folder / f"{page}.md").read_text("utf-8")

    def pages(self) -> list[Path]:
        return sorted(self.folder.rglob("*.html"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("docs")
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "docs" / "_ext")}
    built = subprocess.run(
        [sys.executable, "-m", "pages", folder], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return Site(folder / "html")


class Elements(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if (source := LOADED.get(tag)) and found.get(source):
            self.loaded.append(str(found[source]))


def test_pages_load_nothing_from_other_hosts(site: Site) -> None:
    foreign = [
        (page.name, address)
        for page in site.pages()
        for address in Elements(page.read_text("utf-8")).loaded
        if urlsplit(address).netloc
    ]
    foreign += [(path.name, "a style") for path in site.folder.rglob("*.css") if STYLE_URL.search(path.read_text())]
    assert foreign == []


def test_links_and_anchors_resolve(site: Site) -> None:
    elements = {page: Elements(page.read_text("utf-8")) for page in site.pages()}
    broken = []
    for page, found in elements.items():
        for link in found.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            known = elements[target].ids if target in elements else set()
            if not target.is_file() or (address.fragment and unquote(address.fragment) not in known):
                broken.append((str(page.relative_to(site.folder)), link))
    assert broken == []


def test_goals_are_two_clicks_from_home(site: Site) -> None:
    """The links in the text suffice, without those of the sidebar."""
    reached = {site.folder / "index.html"}
    for _ in range(CLICKS):
        reached |= {target for page in reached for target in linked_from(page)}
    assert {goal for goal, page in GOALS.items() if site.folder / f"{page}.html" not in reached} == set()


def linked_from(page: Path) -> Iterator[Path]:
    """Yield the pages of the site to which the text of a page links."""
    _, _, rest = page.read_text("utf-8").partition("<article")
    for link in Elements(rest.partition("</article>")[0]).links:
        address = urlsplit(link)
        if not address.netloc and address.path.endswith(".html"):
            yield (page.parent / unquote(address.path)).resolve()


def test_every_page_has_markdown_next_to_it(site: Site) -> None:
    made_by_sphinx = {"genindex.html", "search.html", "py-modindex.html"}
    pages = [page for page in site.pages() if page.name not in made_by_sphinx]
    listed = (site.folder / "llms.txt").read_text("utf-8")
    whole = (site.folder / "llms-full.txt").read_text("utf-8")
    for page in pages:
        name = str(page.relative_to(site.folder).with_suffix(".md"))
        assert f"]({name}): " in listed
        assert page.with_suffix(".md").read_text("utf-8") in whole


def test_every_page_has_its_own_llms_txt(site: Site) -> None:
    for text in site.folder.rglob("*.md"):
        if text == site.folder / "index.md" or "files" in text.relative_to(site.folder).parts[:1]:
            continue
        own = (text.parent if text.stem == "index" else text.with_suffix("")) / "llms.txt"
        links = re.findall(r"^- \[.+\]\((\S+)\): ", own.read_text("utf-8"), re.MULTILINE)
        targets = [(own.parent / link).resolve() for link in links]
        assert targets[0] == text
        assert all(each.is_file() for each in targets)
    linked = (site.folder / "troubleshooting" / "llms.txt").read_text("utf-8").partition("## Linked pages")[2]
    assert "(../servers/failures.md): " in linked


def test_every_command_and_flag_is_described(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    described = dict(re.findall(r"^### (.+)\n((?:(?!^### |^## ).*\n)*)", site.text("reference/cli"), re.MULTILINE))
    absent = []
    for command in COMMANDS:
        if command.is_alias:
            continue
        with suppress(SystemExit):
            main(["--help"], command.script) if command.script else main(
                [*command.spelled.split()[1:], "--help"], "ng"
            )
        flags = {*re.findall(r"^  (?:-\w,? ?.*)?(--[a-z][\w-]*)", capsys.readouterr().out, re.MULTILINE)} - {"--help"}
        text = described[title_of(command)]
        absent += [(command.usual, name) for name in flags if name not in text]
    assert absent == []


def test_every_key_is_described(site: Site) -> None:
    configuration, commands = site.text("reference/configuration"), site.text("reference/cli")
    described = set(re.findall(r"^:::\{confval\} (.+)$", configuration, re.MULTILINE))
    absent = {
        key for key in TOP_LEVEL_KEYS - described if f"Key: `{key}`" not in commands and f"--{key}," not in commands
    }
    assert absent == set()
    without_meaning = re.findall(r":::\{confval\} (.+)\n:type:.*\n:default:.*\n\n+:::", configuration)
    assert without_meaning == []


@pytest.mark.parametrize(
    ("module", "page"),
    [
        ("nemo_gym", "nemo_gym"),
        ("nemo_gym.grading", "grading"),
        ("nemo_gym.testing", "testing"),
        ("nemo_gym.training", "training"),
        ("nemo_gym.dialects.chat", "dialects"),
    ],
)
def test_every_exported_name_is_described(site: Site, module: str, page: str) -> None:
    described = set(re.findall(r"\{py:\w+\} (\w+)", site.text(f"reference/api/{page}")))
    assert exported_by(module) - described == set()


def exported_by(name: str) -> set[str]:
    """Return the public names that the source of a module imports as themselves or defines, or its `__all__`."""
    if name == "nemo_gym":
        return {each for each in nemo_gym.__all__ if not each.startswith("_")}
    source = Path(str(importlib.import_module(name).__file__)).read_text("utf-8")
    imported = re.findall(r"^\s*from \S+ import (\w+) as \1$", source, re.MULTILINE)
    defined = re.findall(r"^(?:async def|def|class) ([A-Za-z]\w*)", source, re.MULTILINE)
    return {*imported, *defined}


def test_every_server_and_benchmark_is_listed(site: Site) -> None:
    def silent(_: str) -> None:
        pass

    found = {
        "environments": [each for each in catalog.environments(silent) if each.kind == "environment"],
        "benchmarks": catalog.benchmarks(silent),
        "agents": catalog.servers("responses_api_agents", silent),
        "models": catalog.servers("responses_api_models", silent),
    }
    for page, components in found.items():
        listed = set(re.findall(r"^\| \[([^\]]+)\]", site.text(f"reference/{page}"), re.MULTILINE))
        assert {each.name for each in components if each.path.is_relative_to(REPOSITORY)} == listed


def test_links_between_files_of_the_repository_resolve() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("*/*/README.md")]
    pages = [page for page in pages if "_build" not in page.parts and ".venv" not in page.parts]
    broken = [
        f"{page.relative_to(REPOSITORY)}: {link}"
        for page in pages
        for link in links_in(page)
        if not resolves(page, link)
    ]
    assert broken == []


def links_in(page: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    yield from (link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link)


def resolves(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path) if path else page
    if not target.exists():
        return False
    return not anchor or target.is_dir() or anchor in anchors_of(target)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that code hosts give to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    seen: defaultdict[str, int] = defaultdict(int)
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found
