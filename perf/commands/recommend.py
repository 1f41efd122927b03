"""``recommend`` and ``train-args``: which settings to train with, from sweeps that are stored."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from perf.commands.arguments import Command, add_place, positive
from perf.commands.output import say, say_aside
from perf.verdicts import EXIT_NOTHING_JUDGED

if TYPE_CHECKING:
    from perf.recommend import Advice
    from perf.record_files import Narrowing
    from perf.sweep_files import Stored

DOCUMENT = Path("docs/recommendations.md")


def _declare_common(parser: argparse.ArgumentParser) -> None:
    from perf.cells import HEADROOM
    from perf.recommend import IMAGES

    parser.add_argument("sweeps", type=Path, nargs="+", metavar="SWEEP", help="folders of records, or stored files")
    parser.add_argument("--config", metavar="NAME", help="only this config")
    parser.add_argument(
        "--headroom", type=_share, default=HEADROOM, metavar="SHARE", help="memory to keep free; default: %(default)s"
    )
    parser.add_argument(
        "--images", type=positive, default=IMAGES, metavar="N", help="images of an epoch; default: COCO 2017's"
    )
    parser.add_argument("--loader", type=Path, metavar="RECORDS", help="records that measured rfdetr's loader")
    add_place(parser)


def _share(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1:
        msg = f"{text!r} is no share, from 0 to below 1"
        raise argparse.ArgumentTypeError(msg)
    return found


def _declare_recommend(parser: argparse.ArgumentParser) -> None:
    _declare_common(parser)
    parser.add_argument("--rows", action="store_true", help="print the cookbook's table rows only")
    parser.add_argument("--store", type=Path, metavar="FILE", help="write the cells of one sweep to a small file")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"write the document, such as {DOCUMENT}")
    parser.add_argument("--check", action="store_true", help="with --out: write nothing; exit 1 if it would change")
    parser.add_argument("--against", type=Path, metavar="SWEEP", help="an exhaustive sweep to hold it against: 2 %%")


def _read(options: argparse.Namespace) -> list[Stored]:
    from perf.sweep_files import read_sweep

    return [read_sweep(path, _narrowing(options)) for path in options.sweeps]


def _narrowing(options: argparse.Namespace) -> Narrowing:
    from perf.record_files import Narrowing

    return Narrowing((), options.device, options.torch)


def _advices(sweep: Stored, options: argparse.Namespace) -> list[Advice]:
    from perf.recommend import advise

    cells = [cell for cell in sweep.found if options.config in (None, cell.case.config)]
    if not cells:
        configs = dict.fromkeys(cell.case.config for cell in sweep.found)
        msg = f"--config {options.config}: no cell of it, only of {', '.join(configs)}"
        raise ValueError(msg)
    return advise(cells, headroom=options.headroom, images=options.images, loader=_loader(sweep, options))


def _loader(sweep: Stored, options: argparse.Namespace) -> dict[str, dict[int, float]]:
    """Return what so many workers yield in images per second: of the records that were given, else of the sweep's."""
    from perf.sweep_files import loader_for

    return loader_for(sweep, options.loader) if options.loader else sweep.loader


def _recommend(options: argparse.Namespace) -> int:
    from perf.report.sweep import advice_text, rows, rows_table
    from perf.sweep_files import store

    _check_options(options)
    sweeps = _read(options)
    if options.store:
        if len(sweeps) != 1:
            msg = f"--store takes one sweep, and {len(sweeps)} were given"
            raise ValueError(msg)
        store(options.store, sweeps[0].model_copy(update={"loader": _loader(sweeps[0], options)}))
    if options.out:
        return _document(sweeps, options)
    if options.against:
        return _check(sweeps, options)
    advised = [(sweep, _advices(sweep, options)) for sweep in sweeps]
    for sweep, advices in advised:
        where = sweep.environment.gpu_name or sweep.environment.cpu_model
        if not options.rows:
            told = [advice_text(advice, where, options.images, options.headroom) for advice in advices]
            say("\n\n".join(told) + "\n\n")
        say(rows_table(rows(advices, sweep.environment)))
    return 0 if all(a.fastest for _, advices in advised for a in advices) else EXIT_NOTHING_JUDGED


def _check_options(options: argparse.Namespace) -> None:
    """Raise ValueError where a check that was asked for would not be made: its exit code would say that it holds."""
    if options.check and not options.out:
        msg = "--check takes --out FILE: the document that is checked"
        raise ValueError(msg)
    if options.against and options.out:
        msg = "--against and --out are two commands: one checks, the other writes the document"
        raise ValueError(msg)


def _document(sweeps: list[Stored], options: argparse.Namespace) -> int:
    from perf.record import write_atomically
    from perf.report.recommendations import document

    text = document([(sweep, _advices(sweep, options)) for sweep in sweeps], options.images, options.headroom)
    there = options.out.read_text(encoding="utf-8") if options.out.is_file() else None
    if options.check:
        say(f"{options.out}: {'as the cells have it' if there == text else 'would change'}\n")
        return int(there != text)
    write_atomically(options.out, text)
    say(f"{options.out}: written\n")
    return 0


def _check(sweeps: list[Stored], options: argparse.Namespace) -> int:
    from perf.recommend import check
    from perf.report.sweep import check_text
    from perf.sweep_files import differing, read_sweep

    exhaustive = read_sweep(options.against, _narrowing(options))
    for path, sweep in zip(options.sweeps, sweeps, strict=True):
        if others := differing(sweep.environment, exhaustive.environment):
            msg = f"{path} and {options.against} were measured with {others}: nothing can be held against the other"
            raise ValueError(msg)
    found = [one for sweep in sweeps for one in check(sweep.found, exhaustive.found, options.headroom)]
    found = [one for one in found if options.config in (None, one.best.case.config)]
    if not found:
        msg = f"{options.against}: no config in common, or nothing measured"
        raise ValueError(msg)
    say(check_text(found) + "\n")
    return 0 if all(one.holds for one in found) else 1


def _declare_arguments(parser: argparse.ArgumentParser) -> None:
    _declare_common(parser)
    parser.add_argument("--smallest", action="store_true", help="the smallest batch within 2 %% instead of the fastest")


def _arguments(options: argparse.Namespace) -> int:
    from perf.report.sweep import arguments_text

    code = 0
    for sweep in _read(options):
        for advice in _advices(sweep, options):
            chosen = advice.smallest if options.smallest else advice.fastest
            if chosen is None:
                say_aside(
                    f"rfdetr-perf: {advice.config}: nothing was measured that keeps the headroom and has keywords"
                )
                code = EXIT_NOTHING_JUDGED
            else:
                if chosen.case.lane == "cpu":
                    say_aside(f"rfdetr-perf: {advice.config} was measured as a reduced model: this is no advice")
                say(arguments_text(chosen, advice.workers))
    return code


RECOMMEND = Command("recommend", "say which settings to train with, from stored sweeps", _declare_recommend, _recommend)
TRAIN_ARGS = Command(
    "train-args", "print the recommended setting as Python for train()", _declare_arguments, _arguments
)
