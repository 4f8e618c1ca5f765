"""What all measures share: alternation, statistics, cost, results, table and plot."""
