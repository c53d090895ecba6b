"""The learner: a process of its own that turns what the owner said of replies into an adapter."""
