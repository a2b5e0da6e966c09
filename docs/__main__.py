"""Make what the pages of the repository quote and show.

    python -m docs readme                              # all of README.md; runs its commands
    python -m docs readme README.md docs/*.md --code   # only blocks that need no run
    python -m docs pictures all             # from the figures in benchmarks/results/
    python -m docs run                      # put the stored run into today's page
    python -m docs tour                     # execute docs/tour.ipynb in place
    python -m docs words README.md docs/*.md           # words that a page may not use
"""

import sys

from docs import readme, run, tour, words
from docs.pictures import gallery
from lib.terminal import Help, Parser, command


@command("docs", "requirements/plots.txt -r requirements/tour.txt")
def main(argv=None):
    """Make one thing."""
    parser = Parser("python -m docs", description=__doc__, formatter_class=Help)
    things = parser.add_subparsers(dest="thing", required=True, metavar="WHAT")

    part = things.add_parser("readme", help="quoted code, tables, figures and outputs of pages")
    part.add_argument("files", nargs="*", default=["README.md"], help="pages to update")
    part.add_argument("--code", action="store_true", help="only what needs no run")
    part.set_defaults(make=lambda args: readme.update(args.files, args.code))

    part = things.add_parser("pictures", help="pictures of docs/img, light and dark")
    part.add_argument("name", choices=[*gallery.picture_names(), "all"], help="picture to draw")
    part.set_defaults(make=lambda args: gallery.write_pictures(args.name))

    part = things.add_parser("run", help="docs/run.html, the page of one recorded run")
    part.set_defaults(make=lambda args: run.write_page())

    part = things.add_parser("tour", help="docs/tour.ipynb, with the outputs of a fresh run")
    part.set_defaults(make=lambda args: tour.write_tour())

    part = things.add_parser("words", help="find words that a page may not use")
    part.add_argument("files", nargs="+", help="pages to read")
    part.set_defaults(make=lambda args: words.check_pages(args.files))

    args = parser.parse_args(argv)
    return args.make(args)


if __name__ == "__main__":
    sys.exit(main())
