"""``ssl-hub where``, ``list``, ``verify``, ``remove``, ``push`` and ``card``."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from ssl_hub.atomic import expanded, replace_file
from ssl_hub.commands import Subparsers, add_json, options
from ssl_hub.errors import UsageError
from ssl_hub.model.files import readable

NAME = "run folder, release name, or hf-hub:OWNER/NAME@REVISION"


def register(commands: Subparsers) -> None:
    places = commands.add_parser("where", help="where a name is looked for, what is used, and why not the others")
    places.add_argument("name", help=NAME)
    places.set_defaults(run=_where)

    listing = commands.add_parser("list", help="list the releases on this machine")
    add_json(listing)
    listing.set_defaults(run=_list)

    verify = commands.add_parser("verify", help="check that a release is whole and as it was written")
    verify.add_argument("name", help=NAME)
    verify.set_defaults(run=_verify)

    remove = commands.add_parser("remove", help="remove a release or run from the store")
    remove.add_argument("name")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    remove.set_defaults(run=_remove)

    push = commands.add_parser("push", help="publish a run to the Hub, in one commit")
    push.add_argument("run_folder", metavar="RUN", help="run folder, its name in the store, or hf-hub:OWNER/NAME")
    push.add_argument("repository", metavar="OWNER/NAME", help="created where it does not exist; or ./FOLDER")
    push.add_argument("--private", action="store_true", help="create the repository private")
    push.add_argument("--revision", help="a branch other than main")
    push.add_argument("--dry-run", action="store_true", help="show the files and the card; send nothing")
    push.add_argument("--allow-collapsed", action="store_true", help="publish collapsed features; the card says so")
    push.add_argument("--licence", help="of the weights, such as cc-by-4.0 (default: what the release says)")
    push.set_defaults(run=_push)

    card = commands.add_parser("card", help="write the model card of a run, or of every recipe")
    card.add_argument("name", nargs="?", metavar="RUN", help="run folder, its name in the store, or a recipe")
    card.add_argument("--all", action="store_true", help="the card of every recipe, into the folder --out")
    card.add_argument("--out", help="file, or folder with --all (default: print)")
    card.set_defaults(run=_card)


def _where(arguments: Namespace) -> None:
    from ssl_hub.hub.store import ways_on, where

    found = where(arguments.name)
    used = next((place for place in found if place.found), None)
    for place in found:
        mark = "->" if place is used else "  "
        unused = ", not used: an earlier place has it" if place.found and place is not used else ""
        print(f"{mark} {place.kind:8} {place.location}  {place.state}{unused}")
    if used is None:
        raise UsageError(f"{arguments.name!r} is in none of these places; {'; '.join(ways_on(arguments.name))}")
    if used.damaged:
        raise UsageError(f"what would be used, {used.location}, is damaged")


def _list(arguments: Namespace) -> None:
    from ssl_hub.evaluate.measurement import accuracy, protocol_of
    from ssl_hub.hub.inventory import list_releases
    from ssl_hub.hub.store import home
    from ssl_hub.model.standing import standing, trained_on

    holdings = list_releases()
    if arguments.json:
        print(json.dumps([{**asdict(holding), "folder": str(holding.folder)} for holding in holdings], indent=2))
        return
    if not holdings:
        print(f"nothing in {home()}", file=sys.stderr)
        return
    width = max(len(holding.name) for holding in holdings)
    for holding in holdings:
        state = holding.problem
        if not state:
            counted = standing(holding.results, train_split=trained_on(holding.folder)).counted
            state = ", ".join(
                f"{protocol_of(r.protocol, r.settings)} {r.metric} {accuracy(r)} on {r.dataset} ({r.split})"
                for r in counted
            )
        state = state or ("not measured" if holding.finished else "not finished")
        print(f"{holding.name:{width}}  {holding.place:7}  {readable(holding.size):>8}  {state}")


def _verify(arguments: Namespace) -> None:
    from ssl_hub.hub.verify import verify

    verified = verify(arguments.name)
    for name, size in verified.files.items():
        print(f"ok  {readable(size):>8}  {name}")
    compared = "as they were written" if verified.hashed else "there are no hashes to compare with"
    print(f"{verified.folder}: {len(verified.files)} files, {compared}")


def _remove(arguments: Namespace) -> None:
    from ssl_hub.hub.inventory import find, remove

    holding = find(arguments.name)
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{holding.folder} would be removed; give --yes where nobody can be asked")
        if input(f"remove {holding.folder} ({readable(holding.size)})? [y/N] ").strip().lower() not in ("y", "yes"):
            print("kept")
            return
    print(f"removed {remove(arguments.name).folder}")


def _push(arguments: Namespace) -> None:
    from ssl_hub.hub.publish import push

    names = ("private", "revision", "dry_run", "allow_collapsed", "licence")
    done = push(arguments.run_folder, arguments.repository, **options(arguments, *names))
    if arguments.dry_run:
        for name, size in done.files.items():
            print(f"{readable(size):>8}  {name}")
        print(f"\n{done.card}")
        print(f"every check passed; nothing was sent to {done.repository} (--dry-run)")
    elif done.commit is not None:
        state = "published and loaded back" if done.new else "unchanged: already there, and loaded back"
        where, name = f"{done.repository} at {done.commit}", f"hf-hub:{done.repository.id}@{done.commit}"
        if done.commit.startswith("/"):
            where = name = done.commit
        print(f'{state}: {where}\n  ssl_hub.load("{name}")')


def _card(arguments: Namespace) -> None:
    from ssl_hub.hub.card import card, write_cards
    from ssl_hub.hub.inventory import modifications
    from ssl_hub.zoo import RECIPES

    if arguments.all != (arguments.name is None) or (arguments.all and not arguments.out):
        raise UsageError("give a run or a recipe, or --all with --out FOLDER")
    if arguments.all:
        print(f"{len(write_cards(arguments.out))} cards in {arguments.out}")
        return
    text = card(arguments.name)
    if arguments.name in RECIPES and (others := modifications(arguments.name)):
        print(f"this is the recipe's card; the store has runs of it too: {', '.join(others)}", file=sys.stderr)
    if arguments.out:
        out = expanded(arguments.out)
        replace_file(out, text.encode())
        print(out)
    else:
        print(text)
