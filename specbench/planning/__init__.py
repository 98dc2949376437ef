"""The inverse of `predict`: from wishes to settings. Candidate changes, their search, and plans with what they cost."""
