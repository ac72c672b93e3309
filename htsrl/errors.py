"""The errors htsrl raises on purpose. Each message names the value, the rule and the way out."""


class HtsrlError(Exception):
    """Any failure that htsrl understands and explains."""


class ConfigError(HtsrlError):
    """The user asked for something that cannot be trained; nothing has been started or written."""


class EnvironmentFailure(HtsrlError):
    """An environment raised, or broke the Gymnasium contract, while it was being trained on."""


class TrainingDiverged(HtsrlError):
    """A gradient was not finite; the parameters before it are kept."""


class PeerDied(HtsrlError):
    """A worker process ended while others still needed it."""


class WaitTimeout(HtsrlError):
    """A worker waited longer than the deadline for something that never came."""


class RunFolderError(HtsrlError):
    """A run folder is missing, incomplete or not what it claims to be."""
