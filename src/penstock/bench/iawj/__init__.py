"""The intra-window join benchmark (`penstock bench iawj`): eight algorithms, three metrics, the paper's figures."""
