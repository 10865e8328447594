"""The intra-window join benchmark (`python -m benchmarks iawj`): eight algorithms, three metrics, the paper's figures."""
