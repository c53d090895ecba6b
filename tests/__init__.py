"""Tests of Mynah, flat: `test_<area>_<what>.py`."""
