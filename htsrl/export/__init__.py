"""A trained policy as a file that runs without htsrl: ONNX, or a torch.export program."""

from htsrl.export.check import ExportFailed
from htsrl.export.folder import Exported, export

__all__ = ["ExportFailed", "Exported", "export"]
