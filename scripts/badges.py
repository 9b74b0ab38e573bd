"""Write the badges in README.md, which open the first example in Colab, on Kaggle, and on Binder.

.venv/bin/python scripts/badges.py

They are made from the project's address, `Repository` of `[project.urls]` in pyproject.toml. Nothing else names it.
"""

import re
import sys
from importlib.metadata import metadata
from pathlib import Path
from urllib.parse import quote

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = "examples/01_first_launch.ipynb"
BLOCK = re.compile(r"(?<=<!-- badges -->\n).*?(?=<!-- end of badges -->)", re.DOTALL)
NO_ADDRESS = (
    "*Open in Colab*, *Open in Kaggle*, and *launch Binder* will appear here once the project has a "
    "[public address](CONTRIBUTING.md#a-public-address).\n"
)
BADGES = """\
[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab}/github/{name}/blob/main/{example})
[![Open in Kaggle](https://kaggle.com/static/images/open-in-kaggle.svg)]({kaggle}https://github.com/{name}/blob/main/{example})
[![launch Binder](https://mybinder.org/badge_logo.svg)]({binder}/v2/gh/{name}/main?labpath={quoted})

On Colab and Kaggle, first run `%pip install "notebook-accel @ git+https://github.com/{name}"` in a cell.
"""


def main() -> int:
    """Write the block between the two comments anew, and return the exit status."""
    README.write_text(with_badges(README.read_text(), address()))
    return 0


def address() -> str | None:
    """The project's address, as it is installed; None while it has none."""
    urls = dict(url.split(", ", 1) for url in metadata("notebook-accel").get_all("Project-URL", []))
    return urls.get("Repository")


def with_badges(text: str, address: str | None) -> str:
    """The README with the badges that belong to an address.

    Raises:
        ValueError: The address is none of GitHub, from where alone Colab opens notebooks.
    """
    assert BLOCK.search(text), "README.md has lost the comments around its badges"
    return BLOCK.sub(lambda _: NO_ADDRESS if address is None else badges(address), text)


def badges(address: str) -> str:
    """What leads from a repository on GitHub to its first example."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", address)
    if found is None:
        raise ValueError(f"{address!r} is not https://github.com/OWNER/NAME; Colab opens notebooks from there alone")
    return BADGES.format(
        colab="https://colab.research.google.com",
        kaggle="https://kaggle.com/kernels/welcome?src=",
        binder="https://mybinder.org",
        name=found[1],
        example=EXAMPLE,
        quoted=quote(EXAMPLE, safe=""),
    )


if __name__ == "__main__":
    sys.exit(main())
