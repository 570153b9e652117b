"""What a prompt may name of a record, whatever the record holds."""

from caption_assets.core.prompts import record_fields, render


def shown(record_json: str | None, template: str = "{record.a}") -> str:
    return render(template, record_fields(record_json, "about.caption"), {})[0]


def test_fields_and_nested_fields() -> None:
    assert shown('{"a": "x", "b": {"c": [1, null]}}', "{record.a} {record.b.c} {record.none}") == "x [1,null] "


def test_what_a_json_file_says_is_named_with_and_without_json() -> None:
    sample = '{"__key__": "k", "json": {"a": "of the file", "txt": "no"}, "txt": "own"}'
    assert shown(sample, "{record.a} {record.json.a} {record.txt} {record.json.txt}") == "of the file of the file own no"


def test_text_is_the_field_that_the_config_names_unless_the_record_has_its_own() -> None:
    assert shown('{"about": {"caption": "a dog"}}', "{record.text}") == "a dog"
    assert shown('{"json": {"about": {"caption": "a cat"}}}', "{record.text}") == "a cat"
    assert shown('{"about": {"caption": "a dog"}, "text": "its own"}', "{record.text}") == "its own"
    assert render("{record.text}", record_fields('{"a": 1}', "about.caption"), {}) == ("", 1)


def test_digits_and_depth_and_what_is_no_object() -> None:
    assert shown('{"a": 123456789012345678901234567890}') == "123456789012345678901234567890"
    assert shown('{"a": %s}' % ("7" * 5000)) == "7" * 5000
    assert shown('{"a": "x", "b": %s}' % ("[" * 100_000 + "]" * 100_000)) == ""
    assert [shown(text) for text in (None, "", "[1]", "{broken", "NaN", '{"a": NaN}')] == ["", "", "", "", "", "NaN"]
