"""The load that a server gets: prompts of exact lengths, clients or a rate, and what came back."""
