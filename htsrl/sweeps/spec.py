"""What a sweep is: settings to start from, a space, and how it is searched. Checked whole before anything starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from htsrl.config import Config, Experiment, Placement
from htsrl.config.algorithm_settings import registered, settings_class
from htsrl.config.check import check
from htsrl.config.file import resolve_typed_env
from htsrl.config.fit import fitted
from htsrl.config.presets import preset, preset_name, presets_of
from htsrl.errors import ConfigError, UntrustedFolder
from htsrl.metrics.returns import EVALUATION, RETURN
from htsrl.plain_files import read_plain
from htsrl.runs.trust import Vouched, strange_cluster, strange_code
from htsrl.statistics.curve import LAST_SHARE
from htsrl.sweeps.pruning import Pruning, parse_pruning
from htsrl.sweeps.seeds import parse_seeds
from htsrl.sweeps.settings import normalised, with_values
from htsrl.sweeps.space import Space, grid_of, parse_space, single_changes

SPEC_LIMIT_BYTES = 2**20
SAMPLERS = ("tpe", "random", "grid", "cmaes")
OBJECTIVES = ("last", "final", "area", "evaluation")
TABLES = frozenset({"sweep", "pruning", "train", "space"})
CHECKPOINT_SECONDS = 30.0
"""Unless [train] says otherwise: what a kill may cost of every run under way."""


@dataclass(frozen=True)
class Search:
    """The table [sweep]: all that decides which trials there are and which is best."""

    trials: int = 20
    """How many; may be raised later, and the first ones stay what they were."""
    sampler: Literal["tpe", "random", "grid", "cmaes"] = "tpe"
    seed: int = 0
    """Of the search; runs have `seeds`."""
    seeds: tuple[int, ...] = (1,)
    """Every trial is trained with each of them, and its value is their mean."""
    lag: int = 3
    """Trial k knows the results of trials 0 to k - 1 - lag, so lag + 1 trials can run side by side."""
    startup_trials: int = 10
    """So many results before tpe and cmaes look at them; random until then."""
    objective: Literal["last", "final", "area", "evaluation"] = "last"
    """last: mean over the last `share` of training. final: at its end. area: mean over the run. evaluation: of the
    final policy, over `eval_episodes` episodes."""
    share: float = LAST_SHARE
    metric: str = RETURN
    """Of metrics.jsonl."""
    eval_episodes: int = 20
    direction: Literal["maximize", "minimize"] = "maximize"


@dataclass(frozen=True)
class SweepSpec:
    """A whole sweep."""

    config: Config
    """What all trials have in common, with the values outside the space."""
    space: Space
    search: Search
    pruning: Pruning
    name: str = "sweep"
    given: frozenset[str] = field(default_factory=frozenset)
    """Settings that were named, which those of a preset are fitted to."""
    uses_preset: bool = False

    @property
    def maximize(self) -> bool:
        return self.search.direction == "maximize"

    @property
    def uses_results(self) -> bool:
        """Whether a trial depends on earlier ones at all."""
        return self.search.sampler in ("tpe", "cmaes") or self.pruning.rule != "none"

    def config_of(self, settings: Mapping[str, Any]) -> Config:
        """What a trial with these settings trains, but for its seed and folder."""
        config = with_values(self.config, settings, "[space]")
        if self.uses_preset:
            config = replace(config, experiment=fitted(config.experiment, self.given))
        return config


def read_spec(path: Path, vouched: Vouched) -> SweepSpec:
    """A TOML file; code that it names is imported only where the user vouches for it."""
    try:
        document = tomllib.loads(read_plain(path, SPEC_LIMIT_BYTES).decode())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        return parse_spec(document, path.stem, vouched)
    except UntrustedFolder:
        raise
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_spec(document: Mapping[str, Any], name: str, vouched: Vouched) -> SweepSpec:
    """The same from tables; ConfigError for the first thing that cannot work, before anything starts."""
    if unknown := sorted(document.keys() - TABLES):
        raise ConfigError(f"unknown table {unknown[0]!r}; there are [sweep], [pruning], [train] and [space]")
    train = _table(document, "train")
    config, uses_preset = _base(train, vouched)
    search = _search(_table(document, "sweep"))
    space = parse_space(_normalised(_table(document, "space")), config)
    pruning = parse_pruning(document.get("pruning"), config.experiment.total_steps)
    given = frozenset(map(normalised, (*train, *space)))
    spec = SweepSpec(config, space, search, pruning, name, given, uses_preset)
    _check_search(spec)
    _check_ends(spec)
    return spec


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{name}] must be a table of names and values, not {table!r}")
    return table


def _normalised(table: Mapping[str, Any]) -> dict[str, Any]:
    flat = {f"env_args.{key}": value for key, value in dict(table.get("env_args", {})).items()}
    return {**{normalised(name): value for name, value in table.items() if name != "env_args"}, **flat}


def _base(train: Mapping[str, Any], vouched: Vouched) -> tuple[Config, bool]:
    """What [train] says: an environment, an algorithm, a preset, and settings by name."""
    settings = _normalised(train)
    env, algo, named_preset = settings.pop("env", None), settings.pop("algo", "ppo"), settings.pop("preset", "auto")
    if env is None:
        raise ConfigError('[train] names no environment; give env, such as env = "CartPole-v1"')
    if settings.keys() & {"seed", "run_dir"}:
        raise ConfigError("[train] has seed or run_dir; give `seeds` in [sweep], and the folder with --run-dir")
    if not isinstance(algo, str) or (algo not in registered() and not vouched.everything):
        _refuse_code(f"the algorithm {algo!r}") if isinstance(algo, str) and ":" in algo else settings_class(str(algo))
    algo_preset, uses_preset = _preset(env, algo, named_preset)
    experiment = algo_preset or Experiment(env, algorithm=settings_class(algo)())
    config = Config(experiment, Placement(progress="off", checkpoint_every_seconds=CHECKPOINT_SECONDS))
    config = with_values(config, settings, "[train]")
    placement = config.placement
    strange = [*strange_code(config.experiment, vouched), *strange_cluster(placement, placement)]
    strange = [] if vouched.everything else strange
    if strange:
        _refuse_code(", ".join(strange))
    if isinstance(env, str):
        config = replace(config, experiment=replace(config.experiment, env=resolve_typed_env(env)))
    return config, uses_preset


def _refuse_code(what: str) -> None:
    raise UntrustedFolder(
        f"the specification names code to run: {what}; if you wrote it, or trust who did, say --trust (trust=True)"
    )


def _preset(env: Any, algo: str, name: Any) -> tuple[Experiment | None, bool]:
    if name == "auto":
        name = preset_name(env) if isinstance(env, str) else None
        name = name if name in presets_of(algo) else None
    if name in (None, "none"):
        return None, False
    return preset(env, algo, str(name)), True


def _search(table: Mapping[str, Any]) -> Search:
    defaults = Search()
    if unknown := sorted(table.keys() - vars(defaults).keys()):
        raise ConfigError(f"unknown key {unknown[0]!r} in [sweep]; known are {', '.join(vars(defaults))}")
    search = Search(**{**table, "seeds": parse_seeds(table.get("seeds", defaults.seeds))})
    for name, least in (("trials", 1), ("seed", 0), ("lag", 0), ("startup_trials", 1), ("eval_episodes", 1)):
        value = getattr(search, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"[sweep] {name}={value!r} must be a whole number, {least} or more")
    for name, known in (
        ("sampler", SAMPLERS),
        ("objective", OBJECTIVES),
        ("direction", ("maximize", "minimize")),
    ):
        if getattr(search, name) not in known:
            raise ConfigError(f"[sweep] {name}={getattr(search, name)!r} is not known; use one of {', '.join(known)}")
    if isinstance(search.share, bool) or not isinstance(search.share, int | float) or not 0 < search.share <= 1:
        raise ConfigError(f"[sweep] share={search.share!r} must be above 0 and at most 1")
    if not isinstance(search.metric, str):
        raise ConfigError(f"[sweep] metric={search.metric!r} must be a name, such as {RETURN}")
    if search.metric.startswith(EVALUATION):
        raise ConfigError(
            f"[sweep] metric={search.metric!r}: evaluations beside training are skipped where they would be late, so a "
            'sweep would depend on timing; use objective = "evaluation", or a metric of training'
        )
    return search


def _check_search(spec: SweepSpec) -> None:
    if spec.search.sampler == "grid":
        grid_of(spec.space)
        return
    try:
        import optuna  # noqa: F401  (only whether it is there)

        if spec.search.sampler == "cmaes":
            import cmaes  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"sampler={spec.search.sampler} needs the package {error.name}; install htsrl[sweep], or use sampler=grid"
        ) from error


def _check_ends(spec: SweepSpec) -> None:
    """Each end and choice by itself: what fails alone would fail in every trial."""
    check(spec.config)
    for name, value in single_changes(spec.space):
        try:
            check(spec.config_of({name: value}))
        except ConfigError as error:
            raise ConfigError(f"[space] {name}: with {value!r}, {error}") from error
