"""Judge the runs of any trainer: a CSV file with the columns variant, seed and a metric, one run in
each row. The first variant is the baseline. Statistics and report are those of a study: differences
paired by seed with confidence intervals, corrected for the number of variants.
"""

from pathlib import Path
from typing import Any

from tasks.cli.command import print_result
from xformer_kit.registry import config_error

SUMMARY = "the verdict on runs of any trainer, from a CSV file"
EXAMPLES = """examples:
  xformer judge results.csv
  xformer judge results.csv --metric bleu --baseline adamw --report report
  xformer judge results.csv --better lower --json"""
OPTIONS = {
    "file FILE": "CSV with a header: variant,seed,val_loss; more columns are further metrics",
    "--metric NAME": "the column that is compared, if there are several",
    "--baseline NAME": "the variant that the others are compared with (that of the first row)",
    "--better lower|higher": "the direction of a metric whose name does not say it",
    "--margin A": "a difference below which variants count as equivalent",
    "--report DIR": "write report.html, report.md and CSV files into a new directory",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from tasks.study.report import show, write_files
    from xformer_kit.study.report.content import content
    from xformer_kit.study.report.sections import document
    from xformer_kit.study.run_table import read_run_table

    higher = None if args.better is None else args.better == "higher"
    results = read_run_table(Path(args.file), args.metric, args.baseline, higher, args.margin)
    found = content(results)
    folder = new_directory(Path(args.report)) if args.report else None
    page = write_files(folder, results, found) if folder else document(found)
    path = folder / "report.html" if folder else None
    return print_result(args, plain(found), show, page, [], path)


def new_directory(folder: Path) -> Path:
    """Returns the directory. Raises ConfigError if it has files, which a report could replace."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        rule = "must be a new or empty directory: nothing is overwritten"
        raise config_error("--report", rule, folder, "Name another.")
    return folder


def plain(found: Any) -> dict[str, Any]:
    """The verdicts as plain data."""
    from dataclasses import asdict

    return {
        "metric": found.metric.name,
        "higher_is_better": found.metric.higher_is_better,
        "answer": found.sentence,
        "partial": found.partial,
        "variants": [
            {
                "name": one.name,
                **asdict(one.best.interval),
                "failed": list(one.runs.failed),
                "verdict": one.verdict and asdict(one.verdict),
            }
            for one in found.variants
        ],
    }
