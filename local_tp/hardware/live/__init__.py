"""This machine as its drivers and its operating system tell it."""
