"""A study on W&B: its runs are a group with the variant as job type, and its report is a run of the
group.

A run that several studies share is in the group of the study that trained it, because the logger is
not part of a run's key. The report has the W&B id of each run.
"""

import hashlib
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.logging.wandb_run import MAX_GROUP, MAX_JOB_TYPE, MAX_TAG, error_line, start_wandb_run
from xformer_kit.config.options.logger_options import as_loggers
from xformer_kit.files.saved_files import readable
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.plan import StudyRun
from xformer_kit.study.results import Results

ARXIV = re.compile(r"arXiv:\d{4}\.\d{4,5}")
REPORT = "report"  # job type
DPI = 150  # of figures
Table = tuple[list[str], list[list[Any]]]  # columns, rows


def with_logger_options(node: Node, run: StudyRun, config: Config) -> Config:
    """Returns the config of a run, with the group, job type and tags of its W&B logger if they are
    not set.
    """
    loggers = config["logger"]
    if "wandb" not in as_loggers(loggers):
        return config
    logger = loggers if "name" in loggers else loggers["wandb"]
    defaults = {
        "group": node["name"][:MAX_GROUP],
        "job_type": " ".join((run.variant.name, *run.variant.tuned))[:MAX_JOB_TYPE],
        "tags": [*tags(node), f"seed={run.seed}"],
    }
    options = {**logger, **{k: v for k, v in defaults.items() if logger.get(k) is None}}
    return {**config, "logger": options if "name" in loggers else {**loggers, "wandb": options}}


def tags(node: Node) -> list[str]:
    """Returns W&B tags: the design, `claim` if there is one, and arXiv numbers of its paper."""
    claim = node.get("claim") or {}
    names = [node["design"]["name"], *(["claim"] if claim.get("expect") else [])]
    return [tag[:MAX_TAG] for tag in (*names, *ARXIV.findall(str(claim.get("paper") or "")))]


def publish(node: Node, loggers: Node, results: Results, content: Any) -> None:
    """Logs the report as a W&B run, once for each content: tables of variants, runs and effects,
    the figures, and the page.

    loggers: the node `logger`. Does nothing without W&B or with log_report=false. A failure is
    printed, because the report is written already.
    """
    logger = as_loggers(loggers).get("wandb")
    if logger is None or not node["log_report"]:
        return
    folder, tables = Path(results.folder), dict(_tables(results, content))
    facts = {
        "question": content.question,
        "answer": content.sentence,
        "metric": content.metric.name,
        "partial": content.partial,
    }
    facts |= {"claim": content.claim.outcome} if content.claim else {}
    project = [logger.get(key) for key in ("project", "entity")]
    identity = json.dumps([project, facts, content.sentences, tables], default=str)
    run_id = hashlib.sha256(identity.encode()).hexdigest()[:8]
    marker = folder / f".wandb_{run_id}"
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    try:
        line = _log(node, logger, folder, run_id, facts, tables, content)
    except Exception as error:
        marker.unlink(missing_ok=True)
        line = (
            f"The report could not be logged to W&B ({error_line(error)}); its files are written."
        )
    print(line, file=sys.stderr)


def _tables(results: Results, content: Any) -> Iterator[tuple[str, Table]]:
    """Yields (name, (columns, rows)) of each table: variants and runs with all digits, effects as
    in the report.
    """
    from xformer_kit.study.report import csv_files, tables

    variants, runs = csv_files.variant_rows(content), csv_files.run_rows(results)
    for row in runs:
        row["wandb"] = _wandb_id(Path(row.pop("directory")))
    for name, rows in (("variants", variants), ("runs", runs)):
        columns = csv_files.columns_of(rows)
        yield name, (columns, [[row.get(column) for column in columns] for row in rows])
    for table in tables.effects(content):
        yield table.title.lower(), (table.header, table.rows)


def _wandb_id(directory: Path) -> str | None:
    """Returns the id of a run on W&B; None if it has none."""
    try:
        return readable(directory / "wandb_id.txt").read_text().strip()
    except OSError:
        return None


def _log(
    node: Node,
    logger: Node,
    folder: Path,
    run_id: str,
    facts: Node,
    tables: Mapping[str, Table],
    content: Any,
) -> str:
    """Logs the report as a W&B run; returns a sentence with its address."""
    run, line = start_wandb_run(
        logger,
        folder,
        group=logger.get("group") or node["name"][:MAX_GROUP],
        tags=logger.get("tags") or tags(node),
        name=f"{node['name']} {REPORT}",
        id=run_id,
        job_type=REPORT,
        notes=content.question,
        config={"study": node, "command": content.results.command},
    )
    try:
        import wandb

        logged: dict = {
            name: wandb.Table(columns=[*columns], data=rows, allow_mixed_types=True)
            for name, (columns, rows) in tables.items()
        }
        page = (folder / "report.html").read_text(encoding="utf-8")
        run.log(logged | dict(_figures(content)) | {"report": wandb.Html(page, inject=False)})
        run.summary.update(dict(facts))
    finally:
        run.finish()
    return f"Its report: {line}" if line else "Its report is logged to W&B."


def _figures(content: Any) -> Iterator[tuple[str, Any]]:
    """Yields (name, W&B image) of each figure."""
    import wandb
    from PIL import Image

    from xformer_kit.study.report.sections import document

    for figure in document(content).figures:
        file = io.BytesIO()
        with figure.drawn() as canvas:
            canvas.savefig(file, format="png", dpi=DPI)
        file.seek(0)
        caption = f"{figure.title}. {figure.note}"
        yield figure.name.replace("/", " "), wandb.Image(Image.open(file), caption=caption)
