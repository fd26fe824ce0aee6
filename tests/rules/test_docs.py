"""The documents name only what exists, and leave out nothing they promise to list. Reads sources only.
Needs no server.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from django.core.management import get_commands

from inventory.exceptions import FairdropError
from inventory.redis import keys
from shop.api.views import NotFound
from tests.rules.environment import variables_of_example, variables_of_settings
from tests.rules.sources import FLOORS, ROOT, python_files

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
KEYSPACE = ROOT / "docs" / "keyspace.md"
EVERY_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))

SOURCES = [
    *python_files(*FLOORS, "tests"),
    *sorted((ROOT / "inventory" / "scripts").rglob("*.lua")),
    *(ROOT / name for name in ("manage.py", "Makefile", "Dockerfile", "docker-compose.yml", ".env.example")),
]

FOLDERS = "docs|docker|inventory|loadtest|requirements|shop|tests|workers"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./*-]*[\w*]|(?<![\w/.-])\w[\w.-]*\.(?:py|lua|yml|toml|conf|md)\b")
# A document by its name, and what points into one that a reader may not have.
DOCUMENT = re.compile(r"(?<![\w./{}*<>-])(?:[\w-]+/)*[\w-]+\.md\b")
ELSEWHERE = re.compile(r"(?:\w+ )?§ ?[\d.]+|\b(?:in|of|by) the (?:research|specification|design document)\b")
# With an underscore anywhere; without one only where it is set: SERVE=0.
VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b[A-Z]{4,}(?==)")
# Set by an example itself, or known to the program that it is set for.
SHELL_OWN = {"SHOP", "TOKEN", "AUDIT_TOKEN", "ARGS", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "REDISCLI_AUTH"}


@cache
def text_of(document: Path) -> str:
    return document.read_text()


def code_of(text: str) -> list[str]:
    """Return every piece of code of a document: fenced blocks and what stands between backticks."""
    blocks = re.findall(r"^```(?!mermaid)\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def found_in_code(pattern: re.Pattern[str] | str, text: str) -> set[str]:
    return {found for code in code_of(text) for found in re.findall(pattern, code)}


def variables() -> set[str]:
    made = re.findall(r"^([A-Z]+) \?=", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    return variables_of_settings() | variables_of_example() | set(made)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def exists(name: str, document: Path) -> bool:
    """Say whether a path of a document leads to a file here; a bare file name may lie anywhere in the sources."""
    if "/" in name:
        return any(ROOT.glob(name))
    folders = (ROOT, document.parent, *(ROOT / folder for folder in FOLDERS.split("|")))
    return any((folder / name).exists() or any(folder.glob(f"*/{name}")) for folder in folders)


def key_makers() -> dict[str, str]:
    """Return every function of keys.py that makes a key, with the key it makes of its parameters' own names."""
    no_makers = {"checked_sku", "all_of"}
    makers = {name: maker for name, maker in inspect.getmembers(keys, inspect.isfunction) if name not in no_makers}
    own = {name: maker for name, maker in makers.items() if maker.__module__ == keys.__name__}
    return {name: maker(**{word: word for word in inspect.signature(maker).parameters}) for name, maker in own.items()}


def errors() -> Iterator[type[FairdropError]]:
    """Yield every error that a caller of the API can be answered with."""
    waiting = [*FairdropError.__subclasses__(), NotFound]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        if error.__module__.partition(".")[0] in {"inventory", "shop"}:
            yield error


def references_elsewhere(text: str, document: Path) -> list[str]:
    """Return what `text` refers to and the repository does not have."""
    named = DOCUMENT.findall(text)
    missing = [name for name in named if not exists(name, document) and not (document.parent / name).exists()]
    return missing + ELSEWHERE.findall(text)


def slug_of(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def leads_somewhere(link: str, document: Path) -> bool:
    """Say whether a relative link leads to a file of the project and, if it names one, to a heading in it."""
    name, _, anchor = link.partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in map(slug_of, re.findall(r"^#+ (.+)$", target.read_text(), flags=re.MULTILINE))


def test_what_does_not_exist_would_be_found() -> None:
    """The control: invented names of every kind are seen, in spans and in blocks."""
    text = "Set `FAIRDROP_NO_SUCH`, run `make nothing`.\n```sh\nNONE=1 python manage.py no_such shop/no_such.py\n```\n"
    assert found_in_code(VARIABLE, text) == {"FAIRDROP_NO_SUCH", "NONE"}
    assert found_in_code(r"\bmake ([a-z][a-z-]*)", text) == {"nothing"}
    assert found_in_code(r"manage\.py ([a-z_]+)", text) == {"no_such"}
    assert not exists("shop/no_such.py", ROOT / "README.md")
    assert not exists("no_such.py", ROOT / "README.md")
    assert "shop/no_such.py" in found_in_code(PATH, text)
    assert not leads_somewhere("README.md#no-such-heading", ROOT / "ARCHITECTURE.md")
    assert not leads_somewhere("../elsewhere.md", ROOT / "README.md")


def test_a_reference_elsewhere_would_be_found() -> None:
    """The control: a missing document, a section of one, and "the research" are seen; our own documents are not."""
    text = "# design.md §4, reliability §2.1, as in the research; see docs/no_such.md, not docs/api.md or README.md"
    found = references_elsewhere(text, ROOT / "manage.py")
    assert sorted(found) == ["design.md", "docs/no_such.md", "in the research", "md §4", "reliability §2.1"]


def test_no_source_refers_to_a_document_elsewhere() -> None:
    found = {
        str(path.relative_to(ROOT)): references_elsewhere(path.read_text(), path)
        for path in SOURCES
        if path != Path(__file__)  # its controls
    }
    assert {path: names for path, names in found.items() if names} == {}


@EVERY_DOCUMENT
def test_no_document_refers_to_one_elsewhere(document: Path) -> None:
    assert references_elsewhere(text_of(document), document) == []


@EVERY_DOCUMENT
def test_every_variable_exists(document: Path) -> None:
    assert found_in_code(VARIABLE, text_of(document)) - variables() - SHELL_OWN == set()


def test_operations_explain_every_variable() -> None:
    assert variables_of_example() - found_in_code(r"[A-Z_]{4,}", text_of(ROOT / "docs" / "operations.md")) == set()


def unsafe_calls_of_redis(text: str) -> list[str]:
    """Return the commands of a document's blocks that hide an error of Redis, or come before its password is set."""
    found, is_set = [], False
    for line in (
        line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.DOTALL) for line in block.splitlines()
    ):
        is_set |= line.startswith("export REDISCLI_AUTH=")
        calls = re.findall(r"\bredis-cli\b(?! -e )", line) if is_set else re.findall(r"\bredis-cli\b", line)
        found += [line] if calls else []
    return found


@EVERY_DOCUMENT
def test_every_call_of_redis_has_the_password_and_fails_on_an_error(document: Path) -> None:
    assert unsafe_calls_of_redis(text_of(document)) == []


@pytest.mark.parametrize("lines", ["redis-cli -e PING", "export REDISCLI_AUTH=x\nredis-cli -e PING\nredis-cli PING"])
def test_the_control_a_call_of_redis_that_hides_an_error_is_found(lines: str) -> None:
    assert unsafe_calls_of_redis(f"```sh\n{lines}\n```\n") == [lines.splitlines()[-1]]


@EVERY_DOCUMENT
def test_every_make_target_exists(document: Path) -> None:
    assert found_in_code(r"\bmake ([a-z][a-z-]*)", text_of(document)) - make_targets() == set()


def test_the_guide_shows_every_make_target() -> None:
    assert make_targets() - found_in_code(r"\bmake ([a-z][a-z-]*)", text_of(ROOT / "CONTRIBUTING.md")) == set()


def test_the_guides_one_call_of_pre_commit_installs_every_hook() -> None:
    kept = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in kept["repos"] for hook in repo["hooks"]]
    stages = {stage for hook in hooks for stage in hook.get("stages", kept["default_stages"])}
    assert stages == set(kept["default_install_hook_types"])


@EVERY_DOCUMENT
def test_a_program_of_the_environment_is_called_where_it_lies(document: Path) -> None:
    """The changelog names programs, for nobody to call."""
    bare = found_in_code(r"(?m)^(?:locust(?= |$)|python -m loadtest).*", text_of(document))
    assert not bare or document.name == "CHANGELOG.md" or ". .venv/bin/activate" in text_of(document)


@EVERY_DOCUMENT
def test_every_manage_command_exists(document: Path) -> None:
    assert found_in_code(r"manage\.py ([a-z_]+)", text_of(document)) - set(get_commands()) == set()


@EVERY_DOCUMENT
def test_every_path_exists(document: Path) -> None:
    assert [name for name in sorted(found_in_code(PATH, text_of(document))) if not exists(name, document)] == []


def test_every_package_has_its_row_in_the_architecture() -> None:
    rows = re.findall(r"^\| ((?:`[\w/]+`(?:, )?)+) \|", text_of(ROOT / "ARCHITECTURE.md"), flags=re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"[\w/]+", row)}
    files = [path for path in python_files(*FLOORS) if path.name != "__init__.py" and "migrations" not in path.parts]
    packages = {str(path.parent.relative_to(ROOT)) for path in files}
    packages |= {f"tests/{path.relative_to(ROOT).parts[1]}" for path in ROOT.glob("tests/*/**/test_*.py")}
    assert listed ^ packages == {"inventory/scripts"}


def says_nothing(text: str) -> bool:
    return not ast.get_docstring(ast.parse(text))


def test_every_package_says_its_duty() -> None:
    """In the docstring of its `__init__.py`; that every module does the same is a rule of tests/rules/test_shape.py."""
    inits = [path for path in python_files(*FLOORS) if path.name == "__init__.py" and "management" not in path.parts]
    assert [str(path) for path in inits if says_nothing(path.read_text())] == []


def test_a_package_without_a_duty_would_be_found() -> None:
    assert says_nothing("# What it is for.\nfrom shop.models import Sale\n")
    assert not says_nothing('"""It sells."""\n')


@pytest.mark.parametrize(("name", "at_most"), [("README.md", 150), ("ARCHITECTURE.md", 250)])
def test_what_everybody_reads_first_is_short(name: str, at_most: int) -> None:
    assert len(text_of(ROOT / name).splitlines()) <= at_most


def test_the_keyspace_lists_every_key_as_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (\w+) \|", text_of(KEYSPACE), flags=re.MULTILINE)
    assert {name: key for name, key, _ in rows} == key_makers()
    kinds = {name: re.match(r"\w+", inspect.getdoc(getattr(keys, name)) or "") for name in key_makers()}
    assert {name: kind for name, _, kind in rows} == {name: kind and kind[0] for name, kind in kinds.items()}


def test_the_keyspace_lists_every_script() -> None:
    listed = set(re.findall(r"^\| `(inventory/scripts/[\w/]+\.lua)` \|", text_of(KEYSPACE), flags=re.MULTILINE))
    found = {path for path in (ROOT / "inventory" / "scripts").rglob("*.lua") if path.parent.name != "shared"}
    assert listed == {str(path.relative_to(ROOT)) for path in found}


@EVERY_DOCUMENT
def test_every_key_function_exists(document: Path) -> None:
    assert found_in_code(r"\bkeys\.(\w+)\(", text_of(document)) - set(key_makers()) == set()


def test_the_api_lists_every_error() -> None:
    listed = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", text_of(ROOT / "docs" / "api.md"), flags=re.MULTILINE)
    assert {(int(status), code) for status, code in listed} == {(error.status, error.code) for error in errors()}


def test_the_architecture_lists_every_invariant_of_the_audit() -> None:
    rows = re.findall(r"^\| (I\d+\w?) \| (.+?) \|$", text_of(ROOT / "ARCHITECTURE.md"), flags=re.MULTILINE)
    source = "".join(path.read_text() for path in sorted((ROOT / "inventory" / "audit").glob("*.py")))
    assert dict(rows) == dict(re.findall(r'"(I\d+\w?)",\s*_\("([^"]+)"\)', source))


def test_every_decision_is_listed() -> None:
    shown = text_of(ROOT / "ARCHITECTURE.md") + text_of(ROOT / "README.md")
    assert DECISIONS
    assert [path.name for path in DECISIONS if f"docs/decisions/{path.name}" not in shown] == []


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [path.name[:4] for path in DECISIONS] == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize("document", DECISIONS, ids=lambda path: path.name[:4])
def test_a_decision_has_its_rule_and_every_part(document: Path) -> None:
    text = text_of(document)
    title = re.match(r"# (\d{4}): (.+)\n", text)
    assert title
    assert title[1] == document.name[:4]
    assert f"({document.relative_to(ROOT)}) | {title[2]} |" in text_of(ROOT / "ARCHITECTURE.md")
    assert "**Status:**" in text
    assert re.findall(r"^## (\w+)$", text, flags=re.MULTILINE) == ["Context", "Decision", "Consequences"]


@EVERY_DOCUMENT
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text_of(document))
    own = {one or other for one, other in links if not re.match(r"[a-z]+:", one or other)}
    assert [link for link in sorted(own) if not leads_somewhere(link, document)] == []


def test_the_readme_has_one_place_for_the_verdict() -> None:
    marks = re.findall(r"<!-- verdict:(begin|end) -->", text_of(ROOT / "README.md"))
    assert marks == ["begin", "end"]


def steps_of(journey: str) -> list[str]:
    """Return the steps of a journey, in order: the titles that are given to @step."""
    calls = [
        mark for node in ast.parse(journey).body if isinstance(node, ast.FunctionDef) for mark in node.decorator_list
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "step"
    ]  # fmt: skip
    return [ast.literal_eval(call.args[0]) for call in calls]


def test_the_first_hour_has_the_steps_that_a_test_walks_through() -> None:
    text = text_of(ROOT / "docs" / "running-a-sale.md")
    steps = steps_of((ROOT / "tests" / "journeys" / "test_first_hour.py").read_text())
    assert len(steps) == 10
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == [
        *(f"{number}. {title}" for number, title in enumerate(steps, start=1)),
        "Where to go on",
    ]


def test_a_step_that_nobody_walks_would_be_found() -> None:
    """The control: steps are read from the decorators alone, in their order."""
    assert steps_of('@step("Two")\ndef b(): ...\n\n@step("One")\n@other\ndef a(): ...\n\ndef c(): step("Three")') == [
        "Two",
        "One",
    ]


@EVERY_DOCUMENT
def test_every_flag_for_foreign_hosts_has_the_one_name(document: Path) -> None:
    """The changelog says which name it had before."""
    found = set(re.findall(r"--(?:i-own|allow)[\w-]+", text_of(document)))
    assert found <= ({"--allow-remote", "--i-own-this-host"} if document.name == "CHANGELOG.md" else {"--allow-remote"})
