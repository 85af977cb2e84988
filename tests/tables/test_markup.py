"""Rows and columns stay rows and columns, whatever is in them."""

from ssl_hub.tables.markup import markdown_table, tabular


def test_no_text_ends_a_cell_or_a_row_in_markdown():
    assert markdown_table(["a|b", "c"], [["x\ny", "1"]]) == "| a/b | c |\n| --- | --- |\n| x y | 1 |"


def test_no_text_is_a_command_in_latex():
    text = tabular(["a_b", "~"], [["{x}^2\\\\end", "1 ± 2 %"], ["[0.2, 1]", "#&$\n<|>"]])
    assert text.splitlines() == [
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"a\_b & \textasciitilde{} \\",
        r"\midrule",
        r"\{x\}\textasciicircum{}2\textbackslash{}\textbackslash{}end & 1 $\pm$ 2 \% \\",
        r"{[0.2, 1]} & \#\&\$ \textless{}\textbar{}\textgreater{} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
