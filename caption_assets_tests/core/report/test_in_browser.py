"""The report in a real browser: filters work, nothing is loaded from anywhere, nobody's script runs."""

import pytest

from caption_assets_tests.browser import chromium, new_page
from caption_assets_tests.core.report.reportkit import HOSTILE, make_collection, write

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    collection = make_collection(tmp_path_factory.mktemp("report"))
    write(collection, ["shard-00000", "shard-00001"], ["shard-00002"])
    return collection


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(collection, browser):
    """The first shard's page; whatever it asks for and complains about is noted."""
    page = new_page(browser)
    page.requests, page.said, page.failed = [], [], {}
    page.on("requestfailed", lambda request: page.failed.update({request.url: request.failure}))
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("dialog", lambda dialog: page.said.append(f"dialog {dialog.message}") or dialog.dismiss())
    page.goto(f"file://{collection.layout.report_page('shard-00000')}")
    yield page
    page.context.close()


def shown(page) -> list[str]:
    return page.locator("article:visible summary").all_inner_texts()


def test_reasons_filter(page):
    assert len(shown(page)) == 20
    page.get_by_role("button", name="refusal").click()
    assert shown(page) == ["0012.jpg", "0013.jpg"] and page.locator("#shown").inner_text() == "2 shown"
    page.get_by_role("button", name="empty_file").click()
    assert shown(page) == ["0007.jpg", "0012.jpg", "0013.jpg"]
    for name in ("refusal", "empty_file"):
        page.get_by_role("button", name=name).click()
    assert len(shown(page)) == 20


def test_text_filters(page):
    search = page.get_by_role("searchbox")
    search.fill("GULLS 0005.jpg")
    assert shown(page) == ["0005.jpg"]
    search.press("Enter")
    assert shown(page) == ["0005.jpg"], "there is nothing to submit"
    search.fill("onerror")
    assert shown(page) == ["0000.jpg"], "markup is found as the text it is"
    page.get_by_role("button", name="refusal").click()
    assert shown(page) == []


def test_nothing_of_theirs_runs_or_loads(page, collection):
    page.mouse.move(300, 600)
    page.wait_for_load_state("networkidle")
    own = f"file://{collection.layout.report_page('shard-00000')}"
    assert {url for url in page.requests if not url.startswith("data:")} == {own}
    assert page.title() == "photos / shard-00000" and page.said == []
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.querySelectorAll('img:not([src^=\"data:image/\"]), iframe, object, embed, base').length") == 0
    said = page.locator("article", has=page.get_by_text("0000.jpg", exact=True)).locator("p.said").first
    assert said.inner_text() == HOSTILE["0000.jpg"]


def test_what_turns_the_direction_is_spelled_out_and_turns_nothing(page):
    said = page.locator("article", has=page.get_by_text("0003.jpg", exact=True)).locator("p.said").first
    assert said.inner_text() == "It is called ⟨U+202E⟩gpj.exe⟨U+202C⟩ by its owner, ⟨U+2066⟩and more⟨U+2069⟩ of a harbour"


def test_even_a_script_that_got_in_would_not_run(page):
    page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = "document.title = 'pwned'";
            document.body.append(script);
            document.body.insertAdjacentHTML('beforeend', '<img src="http://127.0.0.1:9/x">');
        }"""
    )
    page.wait_for_load_state("networkidle")
    assert page.title() == "photos / shard-00000"
    assert any("Content Security Policy" in text or "Content-Security-Policy" in text for text in page.said)
    assert {url: why for url, why in page.failed.items() if "127.0.0.1" in url} == {"http://127.0.0.1:9/x": "csp"}


def test_pictures_and_plots_are_seen(page):
    sizes = page.evaluate("Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))")
    assert len(sizes) == 20 and all(size > 16 for size in sizes), "18 thumbnails and two plots"


def test_from_the_index_to_a_shard_and_back(page):
    page.get_by_role("link", name="all shards").click()
    assert page.title() == "photos"
    page.get_by_role("searchbox").fill("not_an_image")
    page.get_by_role("link", name="shard-00000").click()
    assert page.title() == "photos / shard-00000" and not [url for url in page.requests if url.startswith("http")]


def test_both_pages_fit_a_phone(collection, browser):
    page = new_page(browser, 390, 800)
    for path in (collection.layout.report_page("shard-00000"), collection.layout.report_index):
        page.goto(f"file://{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.context.close()
