"""What the pages hold, and that nothing a model or a record says is more than text there."""

import io
import re
import shutil

import pytest
from PIL import Image

from caption_assets.core.layout import Layout
from caption_assets.core.report.datasetpage import write_dataset_report
from caption_assets.core.report.text import visible
from caption_assets_tests.core.mergekit import Collection, words
from caption_assets_tests.core.report.reportkit import EVIL_NAME, HOSTILE, Page, caption, make_collection, recipe_of, write
from caption_assets_tests.pictures import save

SHARDS = ["shard-00000", "shard-00001"]


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return make_collection(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def report(collection):
    return write(collection, SHARDS, ["shard-00002"])


@pytest.fixture(scope="module")
def page(collection, report):
    return Page.of(collection.layout.report_page("shard-00000"))


@pytest.fixture(scope="module")
def index(report):
    return Page.of(report.uri)


@pytest.fixture
def fresh(tmp_path):
    """A small collection to change; one output."""
    collection = Collection(tmp_path, {"shard_size": 3})
    collection.add({f"{n}.png": save(Image.new("RGB", (20, 16), (n * 20, 40, 90)), "PNG") for n in range(6)})
    for shard in collection.prepare():
        collection.caption_all(shard)
        collection.merge(shard)
    return collection


def test_a_card_shows_the_picture_with_every_output(page):
    groups, card = page.cards()["0005.jpg"]
    assert groups == ["captioned"]
    assert words("0005.jpg") in Page("<body>" + card + "<script>").seen
    assert "A title for the picture 0005.jpg" in card and "data:image/jpeg;base64," in card


def test_why_there_is_no_picture_is_said_once(page):
    _, card = page.cards()["0007.jpg"]
    assert card.count("has no bytes") == 1 and "no picture" not in card


def test_pictures_are_small_and_whole(page):
    pictures = page.pictures()
    assert len(pictures) == 18, "all but the two that cannot be read"
    for data in pictures:
        image = Image.open(io.BytesIO(data))
        image.load()
        assert max(image.size) <= 176 and len(data) < 16_384


def test_failed_records_say_why(page):
    cards = page.cards()
    assert {name: groups for name, (groups, _) in cards.items() if groups != ["captioned"]} == {
        "0007.jpg": ["empty_file"],
        "0008.jpg": ["not_an_image"],
        "0012.jpg": ["refusal"],
        "0013.jpg": ["refusal"],
    }
    assert "has no bytes" in cards["0007.jpg"][1] and "data:image" not in cards["0007.jpg"][1]
    assert "data:image/jpeg" in cards["0012.jpg"][1], "a picture that was refused is there to be looked at"


def test_counts_recipe_and_costs_are_those_of_the_shard(collection, page):
    seen = " ".join(page.seen.split())
    assert "records 20 captioned 16 80.0 % failed 4" in seen
    assert "requests 36" in seen, "18 for captions, as many for titles"
    for text in ("Describe the picture.", "Make a title: {output.caption}", "temperature 0.7", "2 × 2 pictures", "refusals on"):
        assert text in seen
    assert recipe_of(collection).dataset in seen and "stub" in seen and "Out of date" not in seen
    assert {"refusal", "empty_file", "not_an_image"} <= set(re.findall(r"<td><code>(\w+)</code></td>", page.text))


def test_plots_are_small_pictures_with_axes(page, index):
    lengths, rate = page.plots()
    assert "characters" in lengths and ">title<" in lengths, "one colour per output, with its name"
    assert "captions/s" in rate
    assert len(index.plots()) == 3
    assert all(len(plot) < 30_000 and "<script" not in plot for plot in (*page.plots(), *index.plots()))


def test_what_models_say_is_text(page, index):
    for record, said in HOSTILE.items():
        assert visible(said) in html_text(page.cards()[record][1]), record
    for shown in (page, index):
        assert shown.tags <= {
            "html", "head", "meta", "link", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2",
            "h3", "h4", "p", "a", "small", "code", "pre", "dl", "dt", "dd", "div", "table", "thead", "tbody", "tr", "th", "td",
            "figure", "figcaption", "img", "details", "summary", "form", "button", "input", "output", "article", "span", "script",
        }  # fmt: skip
        assert shown.text.count("<script>") == 1 and not re.search(r"<[^>]*\son\w+=", shown.text)


def test_nothing_is_loaded_and_links_lead_to_pages_only(page, index):
    for shown in (page, index):
        for address in shown.addresses:
            assert re.fullmatch(r"data:(image/(jpeg|svg\+xml);base64,[A-Za-z0-9+/=]*|,)|[A-Za-z0-9_-]+\.html", address), address
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page.text)[1]
    assert "default-src &#39;none&#39;" in policy and "unsafe" not in policy and "http" not in policy


def test_names_of_files_are_text(page):
    groups, card = page.cards()[visible(EVIL_NAME)]
    assert "\u202e" not in card and "<b " not in card and groups == ["captioned"]


def html_text(fragment: str) -> str:
    return Page("<body>" + fragment + "<script>").seen


def test_the_index_adds_up_and_names_who_is_left_out(collection, index, report):
    seen = " ".join(index.seen.split())
    assert "shards done 2 of 3" in seen and "records 40 captioned 35 87.5 % failed 5" in seen
    assert "shard-00002" in seen and "1 shard not finished" in seen and "about 10 records" in seen
    rows = re.findall(r'<tr data-item><td><a href="([^"]*)">', index.text)
    assert rows == ["shard-00000.html", "shard-00001.html"], "what lacks most comes first"
    assert [f.shard for f in report.shards] == SHARDS
    assert (report.totals.requests, report.totals.prompt_tokens, report.totals.completion_tokens) == (76, 76 * 900, 76 * 40)


def test_engine_time_is_when_requests_were_under_way(report):
    for figures, pictures in zip(report.shards, (18, 20), strict=True):
        (captions, titles) = figures.costs.busy["http://127.0.0.1:9/v1"]
        assert captions[1] - captions[0] == pytest.approx((pictures - 1) / 2 + 1.5)
        assert titles[1] - titles[0] == pytest.approx(0.01, abs=0.01)
    assert report.totals.engine_s == pytest.approx(10 + 11 + 0.02, abs=0.05)
    assert report.totals.gpu_hours_per_million == pytest.approx(report.totals.engine_s / 3600 / 35 * 1e6)
    assert report.totals.eta_s == pytest.approx(10 * report.totals.wall_s / 40), "ten records at the rate so far"


def test_the_same_shard_gives_the_same_page(collection, report, page):
    write(collection, SHARDS, [])
    assert write(collection, SHARDS, ["shard-00002"]).written == [], "nothing changed"
    path = collection.layout.report_page("shard-00000")
    collection.objects.delete(path)
    assert write(collection, SHARDS, ["shard-00002"]).written == ["shard-00000"], "a page that is lost is made anew"
    assert Page.of(path).text == page.text


def test_only_shards_that_changed_are_written_again(fresh):
    assert write(fresh, SHARDS, []).written == SHARDS
    fresh.options["filters"] = {"min_chars": 500}
    fresh.merge("shard-00001")
    report = write(fresh, SHARDS, [])
    assert report.written == ["shard-00001"]
    assert [f.captioned for f in report.shards] == [3, 0]
    assert {reason: count for reason, (count, _) in report.shards[1].reasons.items()} == {"too_short": 3}


def test_a_shard_of_another_recipe_is_called_out_of_date(fresh):
    fresh.options["prompts"] = [{"text": "Name the colours."}]
    report = write(fresh, SHARDS, [])
    page = Page.of(fresh.layout.report_page("shard-00000"))
    assert "Out of date" in page.seen and "Name the colours." not in page.seen
    assert "2 shards" in Page.of(report.uri).seen and report.totals.requests == 6, "costs are of the replies it was merged from"


def test_a_pair_that_disagrees_is_left_out(fresh):
    shutil.copy(fresh.layout.failed("shard-00000"), fresh.layout.failed("shard-00001"))
    report = write(fresh, SHARDS, [])
    assert report.left_out == ["shard-00001"] and [f.shard for f in report.shards] == ["shard-00000"]
    assert "shard-00001" in Page.of(report.uri).seen


def test_pages_of_retired_shards_go_and_others_files_stay(fresh):
    write(fresh, SHARDS, [])
    fresh.objects.put(f"{fresh.layout.report_folder}mine.html", b"not ours")
    report = write(fresh, SHARDS[:1], [])
    assert report.totals.records == 3
    assert not fresh.objects.exists(fresh.layout.report_page("shard-00001"))
    assert fresh.objects.exists(f"{fresh.layout.report_folder}mine.html")
    assert write(fresh, SHARDS, []).written == ["shard-00001"]


def test_a_report_that_ran_out_of_time_says_what_is_missing_and_goes_on(fresh):
    report = write(fresh, SHARDS, [], budget_s=-1)
    assert report.waiting == SHARDS and report.shards == []
    assert "2 finished shards" in Page.of(report.uri).seen
    assert write(fresh, SHARDS, []).waiting == []


def test_no_page_shows_the_secrets_of_an_address(tmp_path):
    collection = Collection(tmp_path).add(
        {"a.jsonl": b'{"uri": "https://me:hush@host/a.png?sig=hush"}\n{"uri": "https://host/?hush"'}
    )
    (shard,) = collection.prepare()
    collection.merge(shard)
    write(collection, [shard], [])
    page = Page.of(collection.layout.report_page(shard))
    assert "https://***@host/a.png?***" in page.seen and "hush" not in page.text
    failed = {row["record_id"]: row for row in collection.rows(collection.layout.failed(shard))}
    assert failed["a.jsonl#1"]["uri"] == "https://me:hush@host/a.png?sig=hush", "the tables keep what the catalog says"
    assert not [row for row in failed.values() if "hush" in row["detail"]]


def test_a_picture_that_changed_or_is_gone_is_not_shown_beside_the_caption(fresh):
    (fresh.source / "0.png").write_bytes(b"")
    (fresh.source / "1.png").unlink()
    same_size = bytearray((fresh.source / "2.png").read_bytes())
    same_size[-20] ^= 1
    (fresh.source / "2.png").write_bytes(bytes(same_size))
    write(fresh, SHARDS, [])
    cards = Page.of(fresh.layout.report_page("shard-00000")).cards()
    for record, why in (("0.png", "has changed"), ("1.png", "no picture"), ("2.png", "has changed since it was captioned")):
        assert why in cards[record][1] and "data:image" not in cards[record][1] and words(record) in html_text(cards[record][1])


def test_without_thumbnails_no_picture_is_read(fresh):
    fresh.options["thumbnails"] = False
    for file in fresh.source.iterdir():
        file.unlink()
    write(fresh, SHARDS, [])
    page = Page.of(fresh.layout.report_page("shard-00000"))
    assert page.pictures() == [] and words("0.png") in page.seen


def test_a_shard_called_index_does_not_take_the_index_page(fresh):
    pages = {fresh.layout.report_page(shard) for shard in ("index", "index-", "shard-00000")} | {fresh.layout.report_index}
    assert len(pages) == 4


def test_a_store_in_s3(fresh, s3_server):
    objects, place = s3_server.store(), f"s3://{s3_server.make_bucket()}/a store"
    layout = Layout(place, "photos")
    for file in (fresh.root / "store").rglob("*.parquet"):
        objects.put(f"{place}/{file.relative_to(fresh.root / 'store')}", file.read_bytes())
    assert write_dataset_report(objects, layout, recipe_of(fresh), SHARDS, []).written == SHARDS
    page = Page(objects.read(f"{place}/photos/report/shard-00001.html").decode())
    assert len(page.pictures()) == 3 and words("4.png") in page.seen
    assert write_dataset_report(objects, layout, recipe_of(fresh), SHARDS, []).written == []


def test_a_report_of_nothing(tmp_path):
    collection = Collection(tmp_path)
    report = write(collection, [], [])
    seen = " ".join(Page.of(report.uri).seen.split())
    assert "shards done 0 of 0" in seen and "Nothing failed." in seen


def test_only_so_many_records_are_shown_and_every_reason_is_among_them(tmp_path):
    collection = make_collection(tmp_path)
    write(collection, SHARDS, [], shown=8)
    cards = Page.of(collection.layout.report_page("shard-00000")).cards()
    assert len(cards) == 8
    assert {group for groups, _ in cards.values() for group in groups} == {"captioned", "empty_file", "not_an_image", "refusal"}
    caption(collection, "shard-00002")
    collection.merge("shard-00002")
    assert write(collection, [*SHARDS, "shard-00002"], []).written == ["shard-00002"]
