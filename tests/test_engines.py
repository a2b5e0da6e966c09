"""exact/engines.py: the verifiers that engines ship, called as installed, and docs/wild.md."""

import re
from pathlib import Path

import pytest

from exact import engines

PAGE = (Path(engines.__file__).parents[1] / "docs" / "wild.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", engines.ENGINES)
def test_the_page_has_what_an_installed_engine_does(package):
    module = pytest.importorskip(engines.ENGINES[package][0].split(".")[0])
    assert engines.is_installed(package), f"{module.__name__} no longer has this function"
    for _, *found in engines.rows(package):
        assert re.search(rf"\| {package} [\d.]+ \| {re.escape(' | '.join(found))} \|", PAGE)


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setattr(engines, "ENGINES", {"nobodys": ("no.such.module", 0, [])})
    engines.main()
    assert capsys.readouterr().out.endswith("Not installed, so left out: nobodys\n")
