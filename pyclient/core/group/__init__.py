"""What a group's coordinator is asked: membership by either protocol, commits and committed offsets."""
