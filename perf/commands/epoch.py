"""``epoch``: whole epochs on COCO 2017, or on a tree of its layout: training plus validation, as users train."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from perf.commands.arguments import Command, positive
from perf.commands.output import resumable, say, say_aside
from perf.levers import LEVERS, PRECISIONS
from perf.suites import LANES

if TYPE_CHECKING:
    from perf.case import Case, Lane
    from perf.run_order import Order

FAILED = 1
# Nobody knows how long an epoch takes before it was measured.
_LONGEST = 7 * 24 * 3600.0
# Images reach the workers' shared memory at most so large: 704 px, Large's, three channels of four bytes.
_IMAGE_BYTES = 704 * 704 * 3 * 4


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--coco-root", type=Path, required=True, metavar="DIR", help="train2017, val2017, annotations")
    parser.add_argument("--full", action="store_true", help="refuse what is not all of COCO 2017")
    parser.add_argument("--check-only", action="store_true", help="check the tree and the room, and stop")
    parser.add_argument("--lane", choices=("auto", *LANES), default="auto")
    parser.add_argument("--config", default="nano", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--batch-size", type=positive, default=4, metavar="N", help="default: %(default)s")
    parser.add_argument("--precision", choices=("auto", *PRECISIONS), default="auto")
    parser.add_argument("--lever", choices=LEVERS, default="eager")
    parser.add_argument("--workers", type=_workers, default=2, metavar="N", help="default: %(default)s, rfdetr's")
    parser.add_argument(
        "--epochs", type=positive, default=3, metavar="N", help="epoch 0 included; default: %(default)s"
    )
    parser.add_argument("--records", type=Path, default=Path("records"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--session", metavar="NAME", help="name it, to go on with it later; default: the time")
    parser.add_argument("--resume", metavar="SESSION", help="go on with this one, from its last checkpoint")


def _workers(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _epoch(options: argparse.Namespace) -> int:
    from perf.coco_tree import check_tree, room

    order = order_of(options)
    say_aside(check_tree(options.coco_root, options.full).text)
    for line in room(order.folder, options.workers, options.batch_size * _IMAGE_BYTES):
        say_aside(line)
    return 0 if options.check_only else _train(order)


def order_of(options: argparse.Namespace) -> Order:
    """Return the order of the training that the command line asks for.

    Raises:
        ValueError: fewer than two epochs, no such session to go on with, or settings that do not go together.
    """
    from perf.run_order import Order
    from perf.session import new_name

    if options.epochs < 2:
        msg = f"--epochs {options.epochs}: at least 2, since epoch 0 compiles and starts workers and does not count"
        raise ValueError(msg)
    name = options.resume or options.session or f"epoch-{new_name()}"
    folder = options.records / name
    case = case_here(options)
    if options.resume and not (folder / case.id).is_dir():
        msg = f"--resume {name}: no training of {case.id} in {folder}; give the same settings as before"
        raise ValueError(msg)
    return Order(case=case, session=name, run=0, folder=folder.resolve(), data=options.coco_root.resolve())


def case_here(options: argparse.Namespace) -> Case:
    """Return the case that the command line asks for.

    Raises:
        ValueError: an unknown config, no GPU on the gpu lane, or settings that this machine or rfdetr has not.
    """
    from perf.case import Case, find_case
    from perf.dataset import folder_name
    from perf.levers import case_of, machine_here, unsupported
    from perf.session import lacking, lane_here

    lane: Lane = "cpu" if lane_here(options.lane) == "cpu" else "gpu"
    cell = case_of(options.config, lane, options.precision, options.lever, options.batch_size)
    more = {"measure": "epochs", "steps": options.epochs, "workers": options.workers}
    case = Case.model_validate({**cell.model_dump(), **more, "data": folder_name(options.coco_root)})
    if why := lacking(case) or unsupported(case.config, case.precision, options.lever, machine_here(lane)):
        msg = f"{case.id}: {why}"
        raise ValueError(msg)
    return find_case(case.id)


def _train(order: Order) -> int:
    from perf.launch import RunFailed, has_finished, run_in_fresh_process
    from perf.locks import alone
    from perf.record import read_record
    from perf.report.epochs import epochs_text

    order.folder.mkdir(parents=True, exist_ok=True)
    busy = f"{order.folder}: another process trains there; wait for it, or give another --session"
    try:
        with resumable(order.session), alone(order.folder / "epoch.lock", busy):
            _check_resumed(order)
            if not has_finished(order):
                run_in_fresh_process(order, say_aside, _LONGEST)
    except RunFailed as failure:
        say_aside(f"rfdetr-perf: {failure}\nthe same command with --resume {order.session} goes on")
        return FAILED
    say(epochs_text(read_record(order.record_path), order))
    return 0


def _check_resumed(order: Order) -> None:
    """Raise ValueError where a training that goes on was begun on other data, machine or software: times would mix."""
    from perf.launch import left_record
    from perf.sweep import changed_here

    if (left := left_record(order)) is None:
        return
    told = left.command.partition("--case")[2]
    if told != order.command.partition("--case")[2]:
        msg = f"{order.folder}: this training was begun with --case{told}; give the same tree, or another --session"
        raise ValueError(msg)
    if changed := changed_here([left]):
        msg = f"{order.folder}: this training was begun with {changed}; give another --session"
        raise ValueError(msg)


EPOCH = Command(
    "epoch", "train whole epochs on COCO 2017: minutes an epoch, training and validation apart", _declare, _epoch
)
