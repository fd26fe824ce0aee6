"""Two languages, none half done: every string that a buyer or staff may read is marked and translated, the catalogue
is what the sources mark and no more, and the compiled one is that of its source. Reads files only.
"""

from __future__ import annotations

import ast
import gettext
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.utils.translation.template import templatize

from shop.web.languages import best_language

ROOT = Path(__file__).resolve().parents[3]
CATALOGUE = ROOT / "shop" / "locale" / "zh_Hans" / "LC_MESSAGES"
TEMPLATES = sorted(
    [
        *(ROOT / "shop" / "templates" / "shop").glob("*.html"),
        *(ROOT / "shop" / "templates" / "shop").glob("*.txt"),
        *(ROOT / "shop" / "templates" / "admin").rglob("*.html"),
        *(ROOT / "shop" / "sandbox" / "templates").rglob("*.html"),
    ]
)
ACCOUNTS = ROOT / "shop" / "accounts"
SOURCES = [*sorted((ROOT / "shop" / "web").glob("*.py")), ACCOUNTS / "forms.py", ACCOUNTS / "factor_pages.py"]
SOURCES += [ROOT / "shop" / "salelog" / name for name in ("pages.py", "words.py")]
STATIC = ROOT / "shop" / "static" / "shop"
# What the replay of a log says of a fault is a code for experts, the same in every language as in verify_sale.py.
SCRIPTS = [*sorted(STATIC.glob("*.js")), *sorted((STATIC / "admin").glob("*.js"))]
SCRIPTS += [STATIC / "log" / name for name in ("kept.js", "page.js", "place.js")]
# Everything that is searched for marks.
MODULES = sorted(
    path
    for top in ("shop", "inventory", "workers")
    for path in (ROOT / top).rglob("*.py")
    if path.parts[-2] != "migrations"
)
PAGES = sorted(path for kind in ("*.html", "*.txt") for path in (ROOT / "shop").rglob(kind))
MARKED = {"gettext", "ngettext", "gettext_lazy", "gettext_noop", "_"}
# What stands on a page in every language.
NAMES = re.compile(r"Fairdrop|UTC|404|en\b|zh-Hans|utf-8|SKU|CSV|\bms\b|p50|p99|shy|nbsp|lsaquo|rsaquo|amp")
READ_ATTRIBUTES = {"alt", "title", "aria-label", "placeholder"} | {
    f"data-{name}" for name in ("label", "sending", "opens", "trying", "stopped")
}


def entries() -> dict[str, list[str]]:
    """Return msgid → translations of the catalogue's source; a context stands before its msgid, as gettext keeps it."""
    found: dict[str, list[str]] = {}
    for block in (CATALOGUE / "django.po").read_text().split("\n\n")[1:]:
        texts = [
            (key, ast.literal_eval(text))
            for key, text in re.findall(r'^(msg\w+(?:\[\d\])?) (".*")$', block, re.MULTILINE)
        ]
        (msgid,) = ["\x04".join(text for key, text in texts if key in ("msgctxt", "msgid"))]
        assert msgid not in found, msgid
        found[msgid] = [text for key, text in texts if key.startswith("msgstr")]
        assert "fuzzy" not in block, msgid
    return found


def marked_in(source: str) -> set[str]:
    """Return the first text of every call that marks one for translation, after its context when it has one."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    found = [(getattr(each.func, "id", ""), each.args) for each in calls]
    plain = [args[:1] for name, args in found if name in MARKED]
    plain += [args[:2] for name, args in found if name == "pgettext"]
    return {
        "\x04".join(each.value for each in args if isinstance(each, ast.Constant))
        for args in plain
        if isinstance(args[0], ast.Constant)
    }


def marked_in_template(text: str) -> set[str]:
    """Return the texts that a template marks for translation."""
    text_of = r"u?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    found = re.findall(rf"\b(p?)(?:n?gettext|_)\(({text_of})(?:, *({text_of}))?", templatize(text))
    return {"\x04".join(map(ast.literal_eval, each[1:] if each[0] else each[1:2])) for each in found}


class Read(HTMLParser):
    """Collects what a reader would see or hear of a template whose tags are taken out."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in READ_ATTRIBUTES and value]


def unmarked(template: str) -> list[str]:
    """Return the words of a template that stand there without a mark."""
    # It stands inside a tag, in the middle of its attributes.
    template = re.sub(r"{% block clock %}.*?{% endblock %}", "", template, flags=re.DOTALL)
    bare = re.sub(r"{% blocktranslate.*?{% endblocktranslate %}", "", template, flags=re.DOTALL)
    bare = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}", "", bare, flags=re.DOTALL)
    reader = Read()
    reader.feed(bare)
    return [text.strip() for text in reader.texts if re.search(r"[A-Za-z]{2,}", NAMES.sub("", text))]


def spoken(script: str) -> list[str]:
    """Return the texts of a script that look like words for a reader: two words with a space between."""
    code = re.sub(r"^\s*//.*$|/\*.*?\*/", "", script, flags=re.MULTILINE | re.DOTALL)
    texts = re.findall(r"\"([^\"\n]*)\"|'([^'\n]*)'|`([^`]*)`", code)
    return [
        text
        for each in texts
        for text in each
        if re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", re.sub(r"\$?{.*?}", "", text))
    ]


def sentences(source: str) -> list[str]:
    """Return the texts of a module that read like words and are not marked; docstrings and errors are not shown."""
    tree = ast.parse(source)
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") in MARKED):
            apart |= {id(each) for each in ast.walk(node)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in apart
        and re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", node.value)
    ]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_text_of_a_template_is_marked_and_translated(path: Path) -> None:
    assert unmarked(path.read_text()) == []
    known = entries()
    for text in marked_in_template(path.read_text()):
        assert all(known.get(text, [""])), f"{text!r} has no translation"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_text_of_a_view_is_marked_and_translated(path: Path) -> None:
    # What a late payment's reason begins with is compared, never shown.
    assert [text for text in sentences(path.read_text()) if text != "paid too late"] == []
    known = entries()
    for text in marked_in(path.read_text()):
        assert all(known.get(text, [""])), f"{text!r} has no translation"


def test_the_catalogue_has_what_the_sources_mark_and_no_more() -> None:
    """So that makemessages would add nothing, and mark nothing as gone; and no entry is empty or a guess."""
    marked = {text for path in MODULES for text in marked_in(path.read_text())}
    marked |= {text for path in PAGES for text in marked_in_template(path.read_text())}
    known = entries()  # which fails for a guess ("fuzzy"), and for two entries of one text
    assert marked - known.keys() == set()
    assert known.keys() - marked == set()
    assert [text for text, translations in known.items() if not translations or not all(translations)] == []
    assert "#~" not in (CATALOGUE / "django.po").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_speak_only_what_the_page_gave_them(path: Path) -> None:
    assert spoken(path.read_text()) == []


def test_the_controls_an_unmarked_text_would_be_found() -> None:
    assert unmarked('<p>{% translate "Paid" %} for you</p>') == ["for you"]
    assert unmarked('<img alt="A kite">') == ["A kite"]
    assert spoken('say("It is open"); // not this one') == ["It is open"]
    assert sentences('"""A docstring here."""\nx = "Sold out now"\ngettext("Not this one")') == ["Sold out now"]
    assert marked_in_template('{% translate "Paid" %}{% blocktranslate %}Pay {{ n }}{% endblocktranslate %}') == {
        "Paid",
        "Pay %(n)s",
    }
    assert marked_in_template('{% translate "Open now" context "state" %}') == {"state\x04Open now"}


# In Chinese each named one case of several, or another one; after it a text that may name that case: the control.
@pytest.mark.parametrize(
    ("text", "word", "control"),
    [
        ("%(title)s: opens for those who may buy first", "名单", "Opens for those on the list in"),
        ("Too many wrong codes came from your network", "访问码", "An access code is needed here"),
        ("Got a place on standby", "候补", "Waiting for returns"),
    ],
)
def test_chinese_names_no_case_that_english_leaves_open(text: str, word: str, control: str) -> None:
    known = entries()
    assert [word in known[each][0] for each in (text, control)] == [False, True]
    assert all("递补" in known[each][0] for each in ("Got a place on standby", "On standby"))


def test_placeholders_are_the_same_in_both_languages() -> None:
    marks = re.compile(r"%\(\w+\)[sd]|{\w+}|%%")
    for text, translations in entries().items():
        for translated in translations:
            assert sorted(marks.findall(translated)) == sorted(marks.findall(text)), text


def test_the_compiled_catalogue_is_that_of_the_source() -> None:
    raw = (CATALOGUE / "django.mo").read_bytes()
    assert struct.unpack("<I", raw[:4]) == (0x950412DE,)
    with (CATALOGUE / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for text, translations in entries().items():
        assert compiled.ngettext(text, text, 1) in translations or compiled.gettext(text) in translations
    assert len({str(key) for key in compiled._catalog if key}) >= len(entries())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("chosen", "accepted", "shown"),
    [
        ("", "", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh-hans"),
        ("", "zh", "zh-hans"),
        ("", "zh-Hans-CN", "zh-hans"),
        ("", "zh-TW,zh-Hant;q=0.9", "en"),
        ("", "de-DE,zh-CN;q=0.5", "zh-hans"),
        ("", "fr", "en"),
        ("", "en-GB;q=0.4,zh-CN;q=0.9", "zh-hans"),
        ("en", "zh-CN", "en"),
        ("zh-hans", "en", "zh-hans"),
        ("klingon", "zh-CN", "zh-hans"),
        ("", "x" * 5000, "en"),
        ("", ";;;q=,,", "en"),
    ],
)
def test_the_own_choice_comes_before_the_browsers(chosen: str, accepted: str, shown: str) -> None:
    assert best_language(chosen, accepted) == shown
