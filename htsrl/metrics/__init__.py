"""What a run tells of itself: metrics on disk, progress on the terminal, and the learning curve."""
