"""A griffe extension: ``:class:`Recipe``` in a docstring becomes a link, resolved where the docstring stands."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([\w.]+)`")


class DocstringRoles(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(lambda role: _link(obj, role[1]), obj.docstring.value)


def _link(obj: griffe.Object, name: str) -> str:
    """The name in code font, and a link where the reference has a section for it."""
    try:
        path = obj.resolve(name)
    except griffe.NameResolutionError:
        path = name
    return f'<autoref identifier="{path}" optional>`{name}`</autoref>'
