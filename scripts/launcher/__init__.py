"""What stands behind `scripts/launch.py`: the standard library alone, before anything is installed.

Knows nothing of local_tp itself. Everything printed is plain ASCII, for every console.
"""
