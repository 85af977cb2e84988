"""Text is text: only what the package itself made is markup."""

import json
import re

from ssl_hub.report.html import Markup, data_block, duration, element, number, table, together

HOSTILE = "</script><script>alert(1)</script><!-- \u2028 \" ' & <img src=x onerror=alert(1)>"


def test_text_and_attributes_are_escaped():
    made = element("p", HOSTILE, title=HOSTILE, data_x=HOSTILE)
    assert re.findall(r"<[^>]*>", made.replace(made[: made.index(">") + 1], "", 1)) == ["</p>"]
    assert made.count('"') == 4  # those around the two attributes
    assert "onerror=alert(1)&gt;" in made


def test_what_was_made_is_not_escaped_again():
    assert element("p", element("b", "x"), None, "") == "<p><b>x</b></p>"
    assert together("<", Markup("<br>"), 3) == "&lt;<br>3"


def test_data_reads_back_and_cannot_end_its_block():
    block = data_block({HOSTILE: [1.5, None, HOSTILE]})
    inner = block.removeprefix('<script type="application/json">').removesuffix("</script>")
    assert json.loads(inner) == {HOSTILE: [1.5, None, HOSTILE]}
    assert not set("<>&\u2028") & set(inner)


def test_attributes_without_a_value():
    assert element("div", hidden=True, title=None, class_=False, aria_label="a") == '<div hidden aria-label="a"></div>'


def test_a_table_aligns_its_last_columns_and_marks_what_is_missing():
    made = table(["a", "b"], [["x", None]], numeric=1)
    assert '<th class="number">b</th>' in made
    assert '<td class="number">\N{EN DASH}</td>' in made


def test_numbers_read_well():
    assert [number(v) for v in (1200.0, 0.123456, 12.34567, None, float("nan"))] == [
        "1,200", "0.1235", "12.35", "\N{EN DASH}", "\N{EN DASH}",
    ]  # fmt: skip
    assert [duration(s) for s in (0.4, 75, 3723)] == ["0:00", "1:15", "1:02:03"]
