"""What all runs of the preference task begin with: a model that knows the text, and a proxy of the gold reward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl_bench.language.bible import SIZES, write_pairs, write_texts
from htsrl_bench.language.pairs import NUM_PAIRS, two_of_each

BATCH = 64


@dataclass(frozen=True)
class Prepared:
    """A folder with it; made once."""

    runs: Path
    sft_steps: int
    num_pairs: int = NUM_PAIRS
    size: str = "small"

    @property
    def folder(self) -> Path:
        """Another one for everything that makes another model."""
        return self.runs / f"{self.size}-sft-{self.sft_steps}-pairs-{self.num_pairs}"

    @property
    def model(self) -> Path:
        return self.folder / "sft"

    @property
    def proxy(self) -> Path:
        return self.folder / "proxy"

    @property
    def prompts(self) -> Path:
        return self.folder / "prompts.jsonl"

    @property
    def held_out(self) -> Path:
        return self.folder / "held_out.jsonl"

    def make(self) -> None:
        """Whatever is not there yet; each step has the same bits when it is done again."""
        from htsrl.language.reward_models import train_reward_model
        from htsrl.language.sft import sft
        from htsrl.language.supervised import FitSettings

        if not (self.folder / "new").is_dir():
            write_texts(self.folder, SIZES[self.size])
        if not self.model.is_dir():
            settings = FitSettings(1e-3, max_steps=self.sft_steps, per_device_train_batch_size=BATCH, max_length=256)
            sft(self.folder / "new", self.folder / "examples.jsonl", self.model, settings)
        pairs = self.folder / "pairs.jsonl"
        if not pairs.is_file():
            write_pairs(pairs, *two_of_each(self.model, self.prompts, self.num_pairs))
        if not self.proxy.is_dir():
            settings = FitSettings(5e-4, num_train_epochs=3, per_device_train_batch_size=BATCH, max_length=256)
            train_reward_model(self.model, pairs, self.proxy, settings)
