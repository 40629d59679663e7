"""What is wrong with a machine, a rule each."""
