"""What an operator asks for: descriptions, plans, the state of a change, its abort, losses of a forced drain."""
