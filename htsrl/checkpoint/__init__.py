"""What a run needs to go on after its processes have ended: taken at a barrier, kept in files."""
