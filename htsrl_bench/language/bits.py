"""Whether the bits of runs on text depend on anything but the experiment: processes, sleeps, resumes, kinds of models.

Every run asserts that generators had the log-probabilities of the learner's pass over the whole text, for every token.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import htsrl
from htsrl.config import Placement
from htsrl.digest import read_links
from htsrl.processes.kill_points import KILL_AT
from htsrl.runs.folder import RunFolder
from htsrl_bench.announcer import Announcer
from htsrl_bench.language.bible import tokenizer_of, write_lines
from htsrl_bench.record import Table

UPDATES, BATCH = 6, 32
KILLED_UPDATES = 40
WORDS = ["the", "of", "and", "to", "in", "that", "he", "shall", "unto", "for", "a", "his", "LORD", "they", "be", "thou"]
SLEEP_SECONDS, PARETO_SHAPE = 0.002, 1.5
SETTINGS: Mapping[str, Any] = {
    "total_episodes": UPDATES * BATCH,
    "generation_batch_size": BATCH,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
}


async def slow_variety(completions: list[str], **columns: Any) -> list[float]:
    """Different words among all, after a time that is now and then long."""
    await asyncio.sleep(SLEEP_SECONDS * random.paretovariate(PARETO_SHAPE))
    return variety(completions)


def variety(completions: list[str], **columns: Any) -> list[float]:
    """Different words among all."""
    return [len(set(text.split())) / max(len(text.split()), 1) for text in completions]


class Echo:
    """A tool that says the last word again, and wants words that it has not heard."""

    def __init__(self, prompt: str, **columns: Any) -> None:
        self._heard = {*prompt.split()}

    def step(self, text: str) -> tuple[str, float, bool]:
        words = text.split() or [""]
        reward = len({*words} - self._heard) / 8
        self._heard.update(words)
        return f" {words[-1]}", reward, False


@dataclass(frozen=True)
class Group:
    """Runs of one experiment."""

    name: str
    settings: Mapping[str, Any]
    kind: str = "llama"
    generators: Sequence[int] = (2,)
    resumed_from: Sequence[int] = ()
    """Updates after which a run ends, to be resumed."""
    kills: str = ""
    """Where a further run's processes kill themselves, as `HTSRL_KILL_AT` has it."""


TOOLS = {"environment": "htsrl_bench.language.bits:Echo", "max_turns": 3, "max_turn_length": 6, "turns_per_rollout": 1}
REWARD_MODEL = "reward-model"
"""The folder of a reward model, beside those of the models."""
REWARD = {"reward_funcs": "htsrl_bench.language.bits:variety"}
SLOW = {"reward_funcs": "htsrl_bench.language.bits:slow_variety"}
KILLS = "before a block counts:3, after a block counts:8, optimizer step:4"
"""Every process dies when it comes to one of them for so many times, and so does the one that takes its place."""
EVERY_BARRIER = range(1, UPDATES)
GROUPS = (
    Group("rloo", {**SETTINGS, **REWARD}, generators=(1, 2, 3, 4), resumed_from=EVERY_BARRIER),
    *(Group(f"rloo, {kind}", {**SETTINGS, **REWARD}, kind) for kind in ("qwen3", "gpt2", "gpt_neox")),
    Group("rloo, LoRA", {**SETTINGS, **REWARD, "lora_r": 4}, generators=(2, 4), resumed_from=EVERY_BARRIER),
    Group("rloo, slow reward", {**SETTINGS, **SLOW}, generators=(1, 2, 4), resumed_from=EVERY_BARRIER),
    Group("rloo, reward model", {**SETTINGS, "reward_funcs": REWARD_MODEL}, generators=(2, 4), resumed_from=(3,)),
    Group("rloo, tool", {**SETTINGS, **TOOLS}, generators=(1, 2, 3, 4), resumed_from=EVERY_BARRIER),
    Group("rloo, lag 2", {**SETTINGS, **REWARD, "lag": 2}, generators=(2, 4), resumed_from=EVERY_BARRIER),
    Group("rloo, killed", {**SETTINGS, **REWARD, "total_episodes": KILLED_UPDATES * BATCH}, kills=KILLS),
    *(
        Group(name, {**SETTINGS, **REWARD, "algorithm": name, "steps_per_generation": 2}, resumed_from=(3,))
        for name in ("online_dpo", "ppo", "grpo", "best_of_k")
    ),
)


@dataclass(frozen=True)
class Compared:
    """A run beside the first of its group."""

    group: str
    run: str
    digest: str
    links: int
    """Updates whose hashes are equal to those of the first run."""
    is_equal: bool
    restarts: int = 0
    """Of processes that were killed."""


def compare_all(folder: Path, announcer: Announcer) -> list[Compared]:
    """Every group, in the processes that it says."""
    prompts = folder / "prompts.jsonl"
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 8))) for _ in range(40)]
    write_lines(prompts, [{"prompt": text} for text in texts])
    models = {kind: _folder(folder / kind, kind, texts) for kind in sorted({group.kind for group in GROUPS})}
    _write_reward_model(models["llama"], folder, texts)
    found = []
    for group in GROUPS:
        announcer.begin(group.name)
        own = _compared(group, models[group.kind], prompts, folder / group.name.replace(" ", "-"))
        announcer.end(f"{sum(run.is_equal for run in own)} of {len(own)} runs equal")
        found += own
    return found


def _compared(group: Group, model: Path, prompts: Path, folder: Path) -> list[Compared]:
    runs = {"one process": _train(group, model, prompts, folder / "inline", backend="inline")}
    for number in group.generators:
        where: dict[str, Any] = {"backend": "processes", "num_executors": number}
        runs[f"{number} generators"] = _train(group, model, prompts, folder / f"{number}", **where)
    sleeping: dict[str, Any] = {**where, "jitter_seconds": 0.01}
    runs[f"{number} generators, sleeping"] = _train(group, model, prompts, folder / "sleeping", **sleeping)
    for updates in group.resumed_from:
        path, steps = folder / f"resumed-{updates}", updates * BATCH
        _train(group, model, prompts, path, backend="inline", total_episodes=steps)
        again = _placement(None, backend="processes", num_executors=2)
        htsrl.resume(path, total_steps=UPDATES * BATCH, placement=again)
        runs[f"resumed after {updates}"] = path
    if group.kills:
        runs["killed"] = _killed(group, model, prompts, folder / "killed")
    (first, *_), found = runs.values(), list[Compared]()
    expected = read_links(first)
    for name, path in runs.items():
        links = read_links(path)
        equal = sum(mine == theirs for mine, theirs in zip(links, expected, strict=False))
        restarts = int(RunFolder(path).result()["restarts"])
        found.append(Compared(group.name, name, links[-1].chain, equal, links == expected, restarts))
    return found


def _killed(group: Group, model: Path, prompts: Path, run_dir: Path) -> Path:
    os.environ[KILL_AT] = group.kills
    try:
        return _train(group, model, prompts, run_dir, backend="processes", num_executors=2)
    finally:
        del os.environ[KILL_AT]


def _train(group: Group, model: Path, prompts: Path, run_dir: Path, total_episodes: int = 0, **where: Any) -> Path:
    settings = {**group.settings, **({"total_episodes": total_episodes} if total_episodes else {})}
    if settings.get("reward_funcs") == REWARD_MODEL:
        settings["reward_funcs"] = str(model.parent / REWARD_MODEL)
    htsrl.rlhf(model, prompts, placement=_placement(run_dir, **where), **settings)
    return run_dir


def _placement(run_dir: Path | None, **where: Any) -> Placement:
    return Placement(run_dir=run_dir, tensorboard=False, progress="off", timeline=False, verify_storages=True, **where)


def _folder(folder: Path, kind: str, texts: Sequence[str]) -> Path:
    """A model of two layers with random weights."""
    import torch
    import transformers

    tokenizer = tokenizer_of(texts)
    common = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    usual = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    own = {"gpt2": gpt2, "qwen3": {**usual, "num_key_value_heads": 2, "head_dim": 8}}.get(kind, usual)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = transformers.AutoConfig.for_model(kind, **{**common, **own})
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _write_reward_model(model: Path, folder: Path, texts: Sequence[str]) -> None:
    """One that has learned for two steps."""
    from htsrl.language.reward_models import train_reward_model
    from htsrl.language.supervised import FitSettings

    pairs = folder / "pairs.jsonl"
    write_lines(pairs, [{"prompt": text, "chosen": " LORD", "rejected": " the the"} for text in texts])
    train_reward_model(model, pairs, folder / REWARD_MODEL, FitSettings(1e-3, max_steps=2))


def table(compared: Sequence[Compared]) -> Table:
    """A line for each group."""
    rows = []
    for group in dict.fromkeys(run.group for run in compared):
        own = [run for run in compared if run.group == group]
        equal = sum(run.is_equal for run in own)
        names = ", ".join(f"{run.run} {run.restarts} times" if run.restarts else run.run for run in own)
        rows.append([group, f"{equal} of {len(own)}", names, f"`{own[0].digest}`"])
    note = (
        f"{UPDATES} updates (killed: {KILLED_UPDATES}) of {BATCH} completions each; equal: hashes of tokens, "
        "log-probabilities, scores and weights of every update. In every run the learner asserted, for every token, "
        "that the generator's log-probability is its own for the version that drew it. "
        "Sleeping: up to 10 ms before work of every process. "
        f"Slow reward: sleeps {SLEEP_SECONDS * 1000:g} ms times a Pareto variable of shape {PARETO_SHAPE:g}. "
        "Killed: generators and learner die of SIGKILL, time and again, between a write and the word that it counts. "
        "Tool: three turns, one in a rollout, so episodes are carried over barriers."
    )
    return Table(["experiment", "equal", "runs", "digest"], rows, [note])
