"""Gates: holding at them, the positions that open them, what a closed one waits for."""
