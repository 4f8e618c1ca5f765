"""Layout changes and what follows them: the controller, drains, re-homing, the controller that stays."""
