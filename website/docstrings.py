"""Links in docstrings: the generated pages of docs/reference show docstrings too, and links are relative to them."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ReferenceLinks(griffe.Extension):
    """Makes links between pages of docs/reference lead there from the pages of the API, which are in another folder."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r"\]\((?=[\w-]+\.md)", "](../reference/", obj.docstring.value)
