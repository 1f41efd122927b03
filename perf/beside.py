"""Environments beside another: what is installed in one comes first, all else from the environment behind it.

So several rfdetr releases share one torch of 6 GB. Needs the standard library only: ``noxfile.py`` imports it.
"""

from __future__ import annotations

from pathlib import Path

_NAME = "rfdetr-perf-behind.pth"


def put_before(environment: Path, behind: Path) -> None:
    """Let the Python of ``environment`` find what is installed in the one ``behind`` too, after its own.

    Raises:
        ValueError: one of them holds no site-packages: it is no environment, or of another Python.
    """
    folders = list(environment.glob("**/site-packages"))
    if not folders:
        msg = f"{environment}: no site-packages below it; make the environment first"
        raise ValueError(msg)
    for folder in folders:
        shared = behind / folder.relative_to(environment)
        if not shared.is_dir():
            msg = f"{shared}: no such folder; {environment} and {behind} must be of one Python minor"
            raise ValueError(msg)
        # A plain path in a .pth file would leave that folder's own .pth files, such as an editable install's, unread.
        (folder / _NAME).write_text(f"import site; site.addsitedir({str(shared)!r})\n", encoding="utf-8")


def holds(environment: Path, release: str) -> bool:
    """Return whether this very release of rfdetr is installed in ``environment`` itself, to its end."""
    # What an installer writes last: one that was stopped leaves the folder without it.
    return any(environment.glob(f"**/site-packages/rfdetr-{release}.dist-info/INSTALLER"))
