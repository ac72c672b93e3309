"""What a run needs to continue after its processes have ended: taken at a barrier, kept in files."""
