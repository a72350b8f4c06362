"""The book in a real browser: every page loads from its own origin, reads in light and dark, and fits a phone."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from playwright.sync_api import expect

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "site"))

from book.build import build_book
from book.launch import launch, repository
from book.pages import only_draws
from book.parts import modules
from lab import PATIENCE, READY, run_all, said

from ledger.build import fresh_practice
from ledger.build.browser import wants_computer
from ledger.chapters import LESSONS, PRACTICE

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
#: Practice notebooks that want torch or Triton.
APART = [path.replace(".ipynb", ".html") for path, notebook in fresh_practice(ROOT).items() if wants_computer(notebook)]
PAGES = [
    "index.html",
    *(f"notebooks/{name}.html" for name in LESSONS),
    *(f"practice/{name}.html" for name in PRACTICE),
    "glossary.html",
    "models.html",
    "machines.html",
    "search.html",
]


@pytest.fixture
def visit(browser, address):
    """Open a page; what goes wrong on it while the test runs fails the test, unless it ``leads_on`` out of the book."""
    contexts, faults = [], []

    def visit(page, *, width=1280, scheme="light", leads_on=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        tab = context.new_page()

        def request(route):
            url = route.request.url
            if urlsplit(url).hostname == "127.0.0.1" or url.startswith(("data:", "blob:")):
                route.continue_()
            else:
                faults.append(f"{page}: asks for {url}")
                route.abort()

        def response(answer):
            if answer.status >= 400 and not leads_on:
                faults.append(f"{page}: {answer.status} for {answer.url}")

        def console(message):
            if message.type in ("error", "warning") and not leads_on:
                faults.append(f"{page}: {message.text}")

        context.route("**/*", request)
        tab.on("response", response)
        tab.on("console", console)
        tab.on("pageerror", lambda error: faults.append(f"{page}: {error}"))
        tab.goto(address + page)
        tab.wait_for_load_state("networkidle")
        tab.wait_for_function("!document.querySelector('.math') || document.querySelector('mjx-container')")
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert not faults


class Links(HTMLParser):
    """The ids of a page and the addresses that it refers to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        self.addresses += [found[name] for name in ("href", "src") if found.get(name)]


def test_the_pages_are_all_there(site):
    found = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {path for path in found if not path.startswith("lite/")} == set(PAGES)


def test_every_internal_link_and_anchor_resolves(root, site):
    pages = {site / page: Links((site / page).read_text()) for page in PAGES}
    faults = []
    for page, links in pages.items():
        for link in links.addresses:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_relative_to(site), f"{page}: {link} leaves the site"
            if target.is_relative_to(site / "lite"):
                (notebook,) = parse_qs(parts.query)["path"]
                ok = target == site / "lite/lab/index.html" and (root / notebook).is_file()
            else:
                ok = target.is_file() and (not parts.fragment or unquote(parts.fragment) in pages[target].ids)
            if not ok:
                faults.append(f"{page.relative_to(site)}: {link}")
    assert not faults


def test_every_page_opens_in_the_browser_with_its_own_notebook_or_the_first_lesson(site):
    for page in PAGES:
        (button,) = re.findall(r'<a [^>]*href="([^"]+)">Open in the browser</a>', (site / page).read_text())
        leads = urlsplit(button)
        assert ((site / page).parent / leads.path).resolve() == site / "lite/lab/index.html"
        own = page.replace(".html", ".ipynb") if "/" in page else f"notebooks/{LESSONS[0]}.ipynb"
        assert parse_qs(leads.query)["path"] == [own]


def test_an_exercise_is_found_by_its_id(site):
    from ledger.exercises import registry

    for exercise in registry().values():
        pages = [site / f"practice/{name}.html" for name in PRACTICE if name.startswith(f"ch{exercise.chapter:02}_")]
        assert sum(exercise.id in Links(page.read_text()).ids for page in pages) == 1


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_fault_that_axe_knows_in_light_and_dark(root, visit, page):
    """Contrast is one of the things that axe measures, so both schemes have to be read; the rest is of the one page."""
    tab = visit(page, scheme="light")
    tab.add_script_tag(path=modules(root / ".cache" / "book") / "axe-core" / "axe.min.js")
    tab.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast", "link-in-text-block"]})):
        tab.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)
        brightness = tab.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        assert (max(brightness) < 60) if scheme == "dark" else (min(brightness) > 230)
        asked = {"resultTypes": ["violations"], **rules}
        found = tab.evaluate("asked => axe.run(document, asked).then(result => result.violations)", asked)
        serious = [
            f"{scheme}: {fault['id']}: {node['html'][:200]}"
            for fault in found
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]
        assert not serious


# What sticks out to the right and cannot be scrolled to: a part of the page that nobody sees on a phone.
STICKS_OUT = """
[...document.querySelectorAll('main *')].filter(element => {
  const box = element.getBoundingClientRect();
  const aside = element.matches('.bd-article-container') || element.closest('mjx-assistive-mml, mjx-speech');
  if (box.right <= innerWidth + 1 || !box.width || aside) return false;
  for (let e = element.parentElement; !e.matches('.bd-article-container, main'); e = e.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return false;
  return true;
}).map(element => element.outerHTML.slice(0, 120))
"""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_a_phone(visit, page):
    tab = visit(page, width=390)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.evaluate("document.querySelector('.bd-article-container').scrollWidth") <= 390
    assert tab.evaluate(STICKS_OUT) == []


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_its_pictures_and_formulas(root, visit, name):
    import nbformat

    tab = visit(f"notebooks/{name}.html")
    pictures = tab.locator(".cell_output img")
    assert pictures.count() >= 4
    for picture in pictures.all():
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
        assert len(picture.get_attribute("alt")) > 15, "a picture is described in words"
    explorers = tab.locator(".cell", has_text=".show()")
    assert explorers.locator("img").count() >= 1, "the explorer's first view"
    text = tab.locator("article").inner_text()
    assert "VBox(" not in text
    assert "Traceback" not in text
    assert tab.locator(".output.stderr").count() == 0, "nothing warns"

    cells = nbformat.read(root / "notebooks" / f"{name}.ipynb", as_version=4).cells
    displayed = sum(cell.source.count("$$") // 2 for cell in cells if cell.cell_type == "markdown")
    assert tab.locator("mjx-container[display=true]").count() == displayed > 0
    assert tab.locator("mjx-container").count() == tab.locator(".math").count()
    assert tab.locator("mjx-merror").count() == 0


@pytest.mark.parametrize("name", PRACTICE)
def test_the_exercises_show_the_stub_and_not_the_answer(root, site, name):
    from ledger.build import fresh_solutions

    def answers(notebook):
        return {c["id"]: c["source"] for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("solution")}

    stubs, solutions = (f(root)[f"{tree}/{name}.ipynb"] for f, tree in _trees(fresh_practice, fresh_solutions))
    text = _text(site / f"practice/{name}.html")
    stubs, solutions = answers(stubs), answers(solutions)
    assert stubs
    for id, stub in stubs.items():
        assert f'raise NotImplementedError("{id}: write your answer here")' in text
        secret = {line.strip() for line in solutions[id]} - {line.strip() for line in stub}
        assert len(secret) >= 2
        telling = [line for line in secret if len(line) > 20]  # a bracket or a bare return gives nothing away
        assert telling
        assert not [line for line in telling if line in text]


def _trees(practice, solutions):
    return (practice, "practice"), (solutions, "solutions")


def _text(page):
    class Text(HTMLParser):
        parts = ()

        def handle_data(self, data):
            self.parts = (*self.parts, data)

    parser = Text()
    parser.feed(page.read_text())
    return "".join(parser.parts)


def test_the_tables_hold_the_published_numbers(visit):
    """DeepSeek-V3's config.json and the H200's datasheet."""
    tab = visit("models.html")
    row = tab.get_by_role("row").filter(has=tab.get_by_role("cell", name="DeepSeek-V3", exact=True))
    expect(row).to_have_count(1)
    wanted = ["DeepSeek-V3", "61", "7,168", "128", "1,536", "512", "128", "64", "128", "576", "70,272"]
    assert row.get_by_role("cell").all_inner_texts() == wanted
    tab = visit("machines.html")
    row = tab.get_by_role("row").filter(has=tab.get_by_role("cell", name="H200", exact=True))
    assert row.get_by_role("cell").all_inner_texts() == ["H200", "141", "4.8", "989", "1,979", "67", "206", "50"]


def test_the_front_page_predicts_and_counts_the_same(visit):
    tab = visit("index.html")
    cards = tab.locator(".three li").all_inner_texts()
    assert [card.split("\n")[0] for card in cards] == ["predict", "count", "measure"]
    for card in cards[:2]:
        assert "2,162,688 against 268,959,744 multiply-adds" in card
    expect(tab.get_by_role("img", name="A graded run")).to_be_visible()


def test_search_finds_absorb(visit):
    tab = visit("index.html")
    tab.keyboard.press("Control+k")
    tab.keyboard.type("absorb")
    tab.keyboard.press("Enter")
    # Results come one by one, and each fetches its page for an excerpt: wait for the one that is asked for.
    results = tab.locator("#search-results ul.search li")
    expect(results.filter(has_text="Keys").first).to_be_visible(timeout=30000)


@pytest.mark.parametrize("page", [page for page in PAGES if "/" in page])
def test_the_keyboard_alone_opens_a_page_in_the_browser(visit, page):
    tab = visit(page, leads_on=True)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to main content"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Open in the browser"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/a-course/lite/lab/index.html?path=" + page.replace(".html", ".ipynb"))


def test_the_button_leads_to_a_notebook_that_runs(visit):
    tab = visit("practice/ch01_keys/keys.html", leads_on=True)
    tab.get_by_role("link", name="Open in the browser").first.click()
    tab.set_default_timeout(PATIENCE)
    tab.wait_for_function(READY, arg="practice/ch01_keys/keys.ipynb")
    ran = {cell["id"]: said(cell["outputs"]) for cell in run_all(tab) if cell["id"].endswith("-check")}
    assert "not written yet" in ran["absorb_query-check"]


def test_a_second_build_measures_nothing_again_and_leaves_the_rest_of_the_site_alone(root, site, tmp_path):
    """Times differ from run to run, so equal pages come from the cache."""
    (tmp_path / "lite").mkdir()
    (tmp_path / "lite" / "index.html").write_text("JupyterLite")
    build_book(root, tmp_path, offline=True)
    for name in LESSONS:
        page = f"notebooks/{name}.html"
        assert (tmp_path / page).read_bytes() == (site / page).read_bytes()
    assert (tmp_path / "lite" / "index.html").read_text() == "JupyterLite"


@pytest.mark.parametrize(
    ("code", "folded"),
    [
        ("a = 1\nb = 2\nfig = new_figure()\nfig", True),
        ("a = 1\nb = 2\nlanes = [a]\nflow('A title', lanes)", True),
        ("fig = new_figure()\nfig", False),
        ("a = 1\nprint(a)\nfig = new_figure()\nfig", False),
        ("a = 1\nassert a\nfig = new_figure()\nfig", False),
        ("def f():\n    return 1\nfig = new_figure()\nfig", False),
        ("a = 1\nb = 2\nc = 3\nd = count(a)\nd", False),
        ("%timeit\n\n\n\nfig", False),
        ("", False),
    ],
)
def test_a_cell_that_only_draws_is_folded(code, folded):
    assert only_draws(code) is folded


@pytest.mark.parametrize("page", APART)
def test_a_notebook_that_no_browser_runs_says_so(site, page):
    text = " ".join(_text(site / page).split())
    assert f"open {page.replace('.html', '.ipynb')} on a computer: it needs PyTorch" in text
    assert "which no browser has. There you can read and write it, and its checks are skipped." in text


@pytest.mark.parametrize(
    "address", ["someone/course", "https://github.com/someone/course", "git@github.com:someone/course.git"]
)
def test_machines_elsewhere_are_offered_where_the_repository_is_known(root, monkeypatch, address):
    monkeypatch.setenv("LEDGER_REPOSITORY", address)
    page = "notebooks/ch01_keys/keys"
    assert dict(launch(root, page, offline=False).others) == {
        "Colab": f"https://colab.research.google.com/github/someone/course/blob/main/{page}.ipynb",
        "Codespaces": "https://codespaces.new/someone/course",
    }
    assert launch(root, page, offline=False).install == "%pip install git+https://github.com/someone/course"
    assert launch(root, page, offline=True).others == ()
    assert launch(root, "practice/ch01_keys/keys", offline=False).others == ()
    assert launch(root, "practice/ch09_experts/ranks", offline=False).others
    assert launch(root, "glossary", offline=False).others == ()


def test_no_address_is_made_up(tmp_path, monkeypatch):
    monkeypatch.delenv("LEDGER_REPOSITORY", raising=False)
    assert repository(tmp_path) is None
    monkeypatch.setenv("LEDGER_REPOSITORY", "")
    assert repository(tmp_path) is None


def test_pictures_of_the_book(visit, shots):
    lesson, practice = f"notebooks/{LESSONS[1]}.html", f"practice/{PRACTICE[0]}.html"
    for name, page, width, scheme in [
        ("book-landing", "index.html", 1280, "light"),
        ("book-landing-dark", "index.html", 1280, "dark"),
        ("book-landing-phone", "index.html", 390, "light"),
        ("book-lesson", lesson, 1280, "light"),
        ("book-lesson-dark", lesson, 1280, "dark"),
        ("book-lesson-phone", lesson, 390, "dark"),
        ("book-practice", practice, 1280, "light"),
    ]:
        file = shots / f"{name}.png"
        tab = visit(page, width=width, scheme=scheme)
        assert tab.evaluate("document.documentElement.dataset.theme") == scheme, "the book follows the system"
        tab.screenshot(path=file, full_page=True)
        assert file.stat().st_size > 50_000
