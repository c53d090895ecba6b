"""Model files, the one renderer per chat template, and the only module that talks to llama.cpp (`llama.py`)."""
