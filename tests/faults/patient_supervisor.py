"""To be imported by a run: its supervisor then waits for workers that are to stop longer than any test does."""

from __future__ import annotations

from fault_envs import HANG_SECONDS

from htsrl.placements import supervisor

supervisor.GRACE_SECONDS = HANG_SECONDS
