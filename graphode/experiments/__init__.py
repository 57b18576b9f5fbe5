"""One file per experiment: configuration, run, result folder."""
