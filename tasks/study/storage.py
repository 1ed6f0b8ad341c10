"""The storage of a search: a journal file in the study's directory, or a database that
several machines reach.
"""

import hashlib
import json
import os
import re
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from xformer_kit.registry import ConfigError, config_error
from xformer_kit.study.metric import metric_of

JOURNAL = "search.journal"
MEANWHILE = (
    "already exists",
    "alembic_version",
    "database is locked",
)  # of tables that another process is making
TRIES, A_LOOK = 5, 0.5  # attempts to open a database, and seconds between them
DRIVERS = {
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}  # module -> package
ENOUGH = 10  # finished trials from which on importance is estimated
ASKED = "asked"  # attribute of Optuna's study: what it is a search of


def need() -> None:
    """Raises ConfigError without Optuna; else silences its own messages."""
    try:
        import optuna
    except ImportError:
        raise config_error(
            "study.design", "a search needs optuna", fix="Use pip install 'xformer_kit[study]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", module="optuna")


def errors() -> tuple[type[Exception], ...]:
    """What a storage raises that cannot be read or written."""
    import optuna

    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        return (optuna.exceptions.OptunaError,)
    return optuna.exceptions.OptunaError, SQLAlchemyError


def address(node: dict) -> str:
    """The storage of a study's node as a URL or an absolute path, which means the same in every
    process.
    """
    given = node["storage"] or str(Path("outputs", "studies", node["name"], JOURNAL))
    if given.startswith("sqlite:///"):
        return f"sqlite:///{os.path.abspath(given.removeprefix('sqlite:///'))}"
    return given if "://" in given else os.path.abspath(os.path.expanduser(given))


def opened(where: str) -> Any:
    """Optuna's storage. Raises ConfigError where it cannot be reached."""
    need()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        if "://" in where:
            return _database(where)
        if Path(where).is_dir() or not Path(where).parent.is_dir():
            raise OSError("it is a directory, or lies in one that does not exist")
        with suppress(FileNotFoundError), open(where, "rb") as file:
            # Optuna takes a file of another kind for a journal whose last line is not whole.
            if (line := file.readline()) and "op_code" not in json.loads(line):
                raise ValueError("it is no journal")
        return JournalStorage(JournalFileBackend(where))
    except Exception as error:  # of Optuna, of SQLAlchemy, of the database's driver
        raise unreachable(where, error) from None


def _database(where: str) -> Any:
    """The database; opened once more where another process was making its tables at the same
    time.
    """
    from optuna.storages import RDBStorage

    for left in reversed(range(TRIES)):
        try:
            return RDBStorage(where, engine_kwargs={"pool_pre_ping": True})
        except errors() as error:
            if not left or not any(word in str(error) for word in MEANWHILE):
                raise
            time.sleep(A_LOOK)


def unreachable(where: str, error: BaseException) -> ConfigError:
    shown = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", where)  # a password stays where it is
    reason = " ".join(str(error.__cause__ or error).split("\n")[0].split()) or type(error).__name__
    way = (
        "Name a file of its own, a database such as sqlite:///search.db, or wait until no other"
        " program holds it."
    )
    if missing := re.search(r"No module named '(\w+)'", reason):
        way = f"Install the database's driver: pip install {DRIVERS.get(missing[1], missing[1])}."
    elif where.startswith("postgres://"):
        way = f"Write postgresql://{shown.removeprefix('postgres://')}."
    return config_error(
        "study.storage",
        f"{shown} cannot be used as a search's storage: {reason.rstrip('.')}",
        fix=way,
    )


def study_of(node: dict, asked: dict) -> Any:
    """The study in the storage, made where there is none. Raises ConfigError where the one of that
    name is of another search.

    `asked`: what must be equal for trials to be of one search, in plain data.
    """
    import optuna

    where = address(node)
    storage = opened(where)
    try:
        study = optuna.create_study(
            study_name=node["name"],
            storage=storage,
            direction="maximize" if metric_of(node).higher_is_better else "minimize",
            load_if_exists=True,
            sampler=sampler(node["design"], asked["seed"]),
            pruner=pruner(node["design"]),
        )
        before = study.user_attrs.get(ASKED)
        if before is None and study.get_trials(deepcopy=False):
            before = {"another program": True}
        if before is None:
            study.set_user_attr(ASKED, asked)
    except errors() as error:
        raise unreachable(where, error) from None
    if before not in (None, asked):
        raise config_error(
            "study.storage",
            f"{where} holds a search '{node['name']}' of {_another(before, asked)}",
            fix="Give this one a name of its own: study.name=NAME, or go on with that one's line.",
        )
    return study


def _another(before: dict, asked: dict) -> str:
    """What another search it is."""
    keys = [key for key in asked | before if before.get(key) != asked.get(key)]
    if "another program" in keys:
        return "another program, whose trials are no runs"
    if "space" in keys:
        one, two = before.get("space", {}), asked["space"]
        changes = [
            f"{name} was {one.get(name, 'not varied')}, is {two.get(name, 'not varied')}"
            for name in one | two
            if one.get(name) != two.get(name)
        ]
        return f"another space: {'; '.join(changes[:3]) or 'its order differs'}"
    known = {
        "config": "another config outside the space",
        "data": "other data",
        "metric": "another metric",
        "seed": "another seed",
    }
    return " and ".join(known.get(key, key) for key in keys)


def trial_of(trial: dict) -> Any:
    """The trial that a run is, in the process that trains it."""
    import optuna

    study = optuna.load_study(
        study_name=trial["name"],
        storage=opened(trial["storage"]),
        sampler=optuna.samplers.RandomSampler(),
        pruner=pruner(trial["design"]),
    )
    return optuna.trial.Trial(study, trial["id"])


def importance(study: Any) -> dict[str, float]:
    """Factor -> its share in how good a trial is, by PED-ANOVA (Watanabe et al., 2023,
    arXiv:2304.10255): how far its values among the best tenth of trials differ from those among
    all. Empty below 10 finished trials, which say nothing of it.
    """
    from optuna import importance
    from optuna.trial import TrialState

    if len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) < ENOUGH:
        return {}
    found = importance.get_param_importances(
        study, evaluator=importance.PedAnovaImportanceEvaluator()
    )
    return {name: round(share, 4) for name, share in found.items()}


def pruner(design: dict) -> Any:
    from optuna import pruners

    kinds = {
        "none": pruners.NopPruner,
        "median": lambda: pruners.MedianPruner(n_startup_trials=0, n_min_trials=1),
        "successive_halving": pruners.SuccessiveHalvingPruner,
        "hyperband": pruners.HyperbandPruner,
    }
    return kinds[design["pruner"]]()


def infeasible(trial: Any) -> tuple[float]:
    """Above 0 for points that cannot be trained, or that diverge: the sampler keeps away from
    them.
    """
    return (trial.user_attrs.get("infeasible", 0.0),)


def sampler(design: dict, seed: int) -> Any:
    """Proposes each trial from a seed of its own, of the study's seed and the trial's number, and
    from the trials before: so a search that was stopped goes on as if it had not been, and one of a
    fixed seed would propose the same again.
    """
    from optuna import samplers

    def made(number: int) -> Any:
        own = int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4], "big")
        if design["sampler"] == "random":
            return samplers.RandomSampler(seed=own)
        return samplers.TPESampler(
            seed=own,
            n_startup_trials=design["startup"],
            constraints_func=infeasible,
            multivariate=True,
            group=True,
            constant_liar=True,
            warn_independent_sampling=False,
        )

    class Seeded:
        """Gives everything to a sampler that is made for the trial."""

        inner: Any = None

        def before_trial(self, study: Any, trial: Any) -> None:
            self.inner = made(trial.number)
            self.inner.before_trial(study, trial)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def after_trial(self, study: Any, trial: Any, *ended: Any) -> None:
            made(trial.number).after_trial(study, trial, *ended)

    return Seeded()
