"""Check what is not run: commands against their parsers, configs by `ng env validate`, imports of ours."""

from __future__ import annotations

import ast
import importlib
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import yaml

from nemo_gym.cli.main import main
from nemo_gym.cli.selectors import agent_config
from nemo_gym.config.run_settings import TOP_LEVEL_KEYS
from nemo_gym.errors import ConfigPathNotFoundError
from tests.docs.commands import commands_of
from tests.docs.pages import Block, Page

PROGRAMS = re.compile(r"(?:ng|gym|nemo_gym)(?:_\w+)?")
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
KEY = re.compile(rf"--(?:[\w-]+\.|(?:{'|'.join(each.replace('_', '[-_]') for each in sorted(TOP_LEVEL_KEYS))})$)")
"""Matches a flag for a key of the configuration, which no help lists."""
OPERATORS = set("();<>|&")
SELECTS = ("--config", "--benchmark", "--environment", "--resources-server", "--model-type", "--search-dir")

POLICY = ("+policy_base_url=http://127.0.0.1:1/v1", "+policy_api_key=EMPTY", "+policy_model_name=model")
"""The policy of a validated config, because a page shows neither an address nor a key that exists."""


def check_block(page: Page, block: Block) -> Iterator[list[str]]:
    """Check a block without running it, and yield the words of each command that has a config to validate.

    Raise `PageError` for an unknown command or flag, and for an import of ours that does not exist.
    """
    if block.language == "python":
        for problem in wrong_imports(block.text):
            raise page.error(block.line, problem)
        return
    for shown in commands_of(page, block):
        for words in ours_in(shown.text):
            if problem := wrong_words(words):
                raise page.error(shown.line, problem)
            if config := config_words(words):
                yield config


def ours_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours in a line of the shell."""
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list[str]()
    for word in [*lexer, ";"]:
        if not set(word) <= OPERATORS:
            words.append(word)
            continue
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        if words and is_ours(words[0]):
            yield [Path(words[0]).name, *words[1:]]
        words = []


def is_ours(program: str) -> bool:
    """Return whether a program, with or without its folder, is a command of the project."""
    return bool(PROGRAMS.fullmatch(Path(program).name))


def wrong_words(words: list[str]) -> str:
    """Return what is wrong with a command: its name, or a flag that its help does not list."""
    program, *others = words
    names = [word for word in others if not word.startswith(("-", "+"))]
    code, help_text = output_of(program, [*others, "--help"])
    if code:
        return f"{program} {' '.join(names[:2])}: {help_text.strip()}"
    known = {*FLAG.findall(help_text), "--no-serve", "-h", "--help"}
    if "--agent-type" in others:
        # A page may write the config of its agent itself.
        with suppress(ConfigPathNotFoundError):
            config = Path(agent_config(others[others.index("--agent-type") + 1]))
            known |= {f"--{key.replace('_', '-')}" for key in yaml.safe_load(config.read_text("utf-8"))}
    flags = [word.partition("=")[0] for word in others if re.match(r"--?[a-z]", word)]
    unknown = [flag for flag in flags if flag not in known and not KEY.match(flag)]
    return f"{program} has no flag {', '.join(unknown)}" if unknown else ""


def output_of(program: str, words: list[str]) -> tuple[int, str]:
    """Return the exit code and the output of a command that starts nothing."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        try:
            code = main(words, program)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, text.getvalue()


def config_words(words: list[str]) -> list[str]:
    """Return the words of a command that choose its config, or none if nothing can be validated."""
    chosen = list[str]()
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word in SELECTS:
            chosen += [word, after]
        elif re.match(r"\+{0,2}(config_paths|[\w-]+\.[\w.-]+)=", word):
            chosen.append(word)
        elif re.fullmatch(r"--[\w-]+\.[\w.-]+", word):
            chosen += [word, after]
    names_a_config = any(word in SELECTS or "config_paths=" in word for word in chosen)
    return [*chosen, *POLICY] if names_a_config else []


def wrong_imports(source: str) -> Iterator[str]:
    """Yield the imports of ours that do not exist. Raise `SyntaxError` for invalid Python."""
    tree = compile(source, "<block>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nemo_gym":
            for name in node.names:
                if not exists(node.module or "", name.name):
                    yield f"{node.module} has no {name.name}"


def exists(module: str, name: str) -> bool:
    """Return whether a module has a name, or a submodule of that name."""
    try:
        if hasattr(importlib.import_module(module), name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        # A package of the page's own needs, such as torch, may be missing here.
        return (error.name or "").split(".")[0] != "nemo_gym"
    return True
