"""The Optuna storage of a search: a journal file in the study's directory, or a database that
several machines share.
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
# errors while another process creates the tables
TEMPORARY_ERRORS = ("already exists", "alembic_version", "database is locked")
ATTEMPTS, ATTEMPT_INTERVAL = 5, 0.5  # to open a database, and seconds between them
MIN_TRIALS = 10  # finished trials that parameter importance needs
IDENTITY = "asked"  # attribute of Optuna's study: what identifies the search


def require_optuna() -> None:
    """Raises ConfigError if Optuna is not installed; else silences its messages."""
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
    """Returns the exceptions of a storage that cannot be read or written."""
    import optuna

    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        return (optuna.exceptions.OptunaError,)
    return optuna.exceptions.OptunaError, SQLAlchemyError


def address(node: dict) -> str:
    """Returns the storage of a study as a URL or an absolute path."""
    storage = node["storage"] or str(Path("outputs", "studies", node["name"], JOURNAL))
    if storage.startswith("sqlite:///"):
        return f"sqlite:///{os.path.abspath(storage.removeprefix('sqlite:///'))}"
    return storage if "://" in storage else os.path.abspath(os.path.expanduser(storage))


def open_storage(url: str) -> Any:
    """Returns Optuna's storage of a URL or path. Raises ConfigError if it cannot be opened."""
    require_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        if "://" in url:
            return _database(url)
        with suppress(FileNotFoundError), open(url, "rb") as file:
            # Optuna does not detect files of other formats.
            if (line := file.readline()) and "op_code" not in json.loads(line):
                raise ValueError("it is no journal")
        return JournalStorage(JournalFileBackend(url))
    except Exception as error:  # of Optuna, SQLAlchemy, or the database's driver
        raise unreachable(url, error) from None


def _database(url: str) -> Any:
    """Returns the database; tries again while another process creates its tables."""
    from optuna.storages import RDBStorage

    for remaining in reversed(range(ATTEMPTS)):
        try:
            return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
        except errors() as error:
            if not remaining or not any(word in str(error) for word in TEMPORARY_ERRORS):
                raise
            time.sleep(ATTEMPT_INTERVAL)


def unreachable(url: str, error: BaseException) -> ConfigError:
    """Returns the error of a storage that cannot be used."""
    printable_url = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", url)  # without the password
    reason = " ".join(str(error.__cause__ or error).split("\n")[0].split()) or type(error).__name__
    return config_error(
        "study.storage",
        f"{printable_url} cannot be used as a search's storage: {reason.rstrip('.')}",
        fix=(
            "Name another file, a database such as sqlite:///search.db, or wait until no other"
            " program locks it."
        ),
    )


def load_or_create(node: dict, identity: dict) -> Any:
    """Returns Optuna's study of this name, created if there is none. Raises ConfigError if the
    storage has another search of this name.

    identity: plain data that is equal for all trials of one search.
    """
    import optuna

    url = address(node)
    storage = open_storage(url)
    try:
        study = optuna.create_study(
            study_name=node["name"],
            storage=storage,
            direction="maximize" if metric_of(node).higher_is_better else "minimize",
            load_if_exists=True,
            sampler=sampler(node["design"], identity["seed"]),
            pruner=pruner(node["design"]),
        )
        stored = study.user_attrs.get(IDENTITY)
        if stored is None and study.get_trials(deepcopy=False):
            stored = {}  # of another program, whose trials are no runs
        if stored is None:
            study.set_user_attr(IDENTITY, identity)
    except errors() as error:
        raise unreachable(url, error) from None
    if stored not in (None, identity):
        others = [key for key in identity if stored.get(key) != identity[key]]
        raise config_error(
            "study.storage",
            f"{url} holds a search '{node['name']}' of another {' and '.join(others)}",
            fix="Use another name, study.name=NAME, or continue the other search with its own"
            " command.",
        )
    return study


def trial_of(trial: dict) -> Any:
    """Returns Optuna's trial of a run, in the process that trains the run."""
    import optuna

    study = optuna.load_study(
        study_name=trial["name"],
        storage=open_storage(trial["storage"]),
        sampler=optuna.samplers.RandomSampler(),
        pruner=pruner(trial["design"]),
    )
    return optuna.trial.Trial(study, trial["id"])


def importance(study: Any) -> dict[str, float]:
    """Returns factor -> importance by PED-ANOVA (Watanabe et al., 2023, arXiv:2304.10255): how far
    the distribution of its values in the best tenth of trials differs from that in all. Empty below
    MIN_TRIALS finished trials.
    """
    from optuna import importance
    from optuna.trial import TrialState

    if len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) < MIN_TRIALS:
        return {}
    evaluator = importance.PedAnovaImportanceEvaluator()
    shares = importance.get_param_importances(study, evaluator=evaluator)
    return {name: round(share, 4) for name, share in shares.items()}


def pruner(design: dict) -> Any:
    """Returns Optuna's pruner of a design."""
    from optuna import pruners

    kinds = {
        "none": pruners.NopPruner,
        "median": lambda: pruners.MedianPruner(n_startup_trials=0, n_min_trials=1),
        "successive_halving": pruners.SuccessiveHalvingPruner,
        "hyperband": pruners.HyperbandPruner,
    }
    return kinds[design["pruner"]]()


def infeasible(trial: Any) -> tuple[float]:
    """Returns Optuna's constraint: above 0 for points that are invalid or diverge."""
    return (trial.user_attrs.get("infeasible", 0.0),)


def sampler(design: dict, seed: int) -> Any:
    """Returns Optuna's sampler of a design. Each trial has its own random seed, from the study's
    seed and the trial's number, so a resumed search proposes the same points as an uninterrupted
    one.
    """
    from optuna import samplers

    def sampler_of(number: int) -> Any:
        trial_seed = int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4], "big")
        if design["sampler"] == "random":
            return samplers.RandomSampler(seed=trial_seed)
        return samplers.TPESampler(
            seed=trial_seed,
            n_startup_trials=design["startup"],
            constraints_func=infeasible,
            multivariate=True,
            group=True,
            constant_liar=True,
            warn_independent_sampling=False,
        )

    class Seeded:
        """Delegates to a sampler that is created for each trial."""

        sampler: Any = None

        def before_trial(self, study: Any, trial: Any) -> None:
            self.sampler = sampler_of(trial.number)
            self.sampler.before_trial(study, trial)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sampler, name)

        def after_trial(self, study: Any, trial: Any, *ended: Any) -> None:
            sampler_of(trial.number).after_trial(study, trial, *ended)

    return Seeded()
