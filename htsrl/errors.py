"""The errors htsrl raises on purpose. Each message names the value, the rule and the way out."""


class HtsrlError(Exception):
    """Any failure that htsrl understands and explains."""

    details_were_shown = False
    """Whether what follows the first line was printed before, when the same was still tolerated."""


class ConfigError(HtsrlError):
    """The user asked for something that cannot be trained; nothing has been started or written."""


class UntrustedFolder(ConfigError):
    """A file that htsrl did not write for this user names code to run; nothing of it was imported."""


class DatasetError(ConfigError):
    """A dataset is missing, cut, altered, of other shapes than it says, or holds what nothing can be learned from;
    nothing of it was used."""


class EnvironmentFailure(HtsrlError):
    """An environment raised, hung, or broke the Gymnasium contract, while it was being trained on."""

    def __init__(self, message: str, env: int | None = None) -> None:
        super().__init__(message)
        self.env = env
        """The environment's index, where it is known."""


class RuleBroken(ValueError):
    """What htsrl finds wrong with what an environment returned; whoever made the call says which environment it was."""


class NotReproduced(EnvironmentFailure):
    """An environment, played again with the same seed and actions, led to something else."""


class StopRequested(HtsrlError):
    """An observer asked the run to end."""


class ObserverFailed(HtsrlError):
    """An observer raised, and observers are strict."""


class TrainingDiverged(HtsrlError):
    """A gradient was not finite; the parameters before it are kept."""


class PeerDied(HtsrlError):
    """A worker process ended while others still needed it."""


class UnclearCrash(PeerDied):
    """A worker ended while several environments were in the middle of their steps, on threads."""


class WaitTimeout(HtsrlError):
    """A worker waited longer than the deadline for something that never came."""


class RunFolderError(HtsrlError):
    """A run folder is missing, incomplete or not what it claims to be."""


class CheckpointDamaged(RunFolderError):
    """A checkpoint is cut, altered or not one at all; nothing of it was used."""


class MomentNotFound(HtsrlError):
    """What a replay was asked to look for never happened in the run."""
