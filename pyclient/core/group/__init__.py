"""What a group's coordinator is asked: commits and committed offsets now, membership in a later release."""
