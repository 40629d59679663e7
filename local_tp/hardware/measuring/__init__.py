"""What this machine can really do, measured in children that can be killed."""
