"""What an operator does with consumer groups: look at them and their gates, let a gate go, set offsets anew."""
