"""The mathematics: returns, losses and update rules, as functions of a batch and parameters."""
