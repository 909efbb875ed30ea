"""What a run was asked for and which devices it is for, checked before anything starts."""
