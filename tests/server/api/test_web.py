"""Finding the web app's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfscope_server.api import web


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A built web app in small."""
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(
        '<link href="/icon.svg"><script type="module" src="/assets/index-1a2b.js"></script>'
    )
    (folder / "assets" / "index-1a2b.js").write_text("export {}")
    return folder


def test_configured_folder_is_taken(build: Path) -> None:
    """HALFSCOPE_WEB_DIR wins over the packaged app."""
    assert web.find(build) == build


def test_configured_folder_without_an_app_is_an_error(tmp_path: Path) -> None:
    """A wrong path shall not quietly serve something else."""
    with pytest.raises(ValueError, match=r"holds no index\.html"):
        web.find(tmp_path)


def test_build_is_served_as_it_is_without_a_root_path(build: Path) -> None:
    """No copy is made."""
    with web.prepared(build, "") as served:
        assert served == build


def test_root_path_is_written_into_the_start_page_alone(build: Path) -> None:
    """The original stays; the copy goes when the server stops."""
    with web.prepared(build, "/halfscope") as served:
        page = (served / "index.html").read_text()
        assert 'src="/halfscope/assets/index-1a2b.js"' in page
        assert 'href="/halfscope/icon.svg"' in page
        assert (served / "assets" / "index-1a2b.js").read_text() == "export {}"
    assert not served.exists()
    assert 'src="/assets/' in (build / "index.html").read_text()


def test_without_a_build_one_page_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API-only installation is told apart from a broken one."""
    monkeypatch.setattr(web, "find", lambda configured: None)
    with web.prepared(None, "") as served:
        assert "npm run build" in (served / "index.html").read_text()
        assert web.build_id(None) == ""


def test_build_id_changes_with_the_build(build: Path) -> None:
    """An open page learns from it that it is stale."""
    before = web.build_id(build)
    (build / "index.html").write_text("another")
    assert len(before) == 12
    assert web.build_id(build) != before
