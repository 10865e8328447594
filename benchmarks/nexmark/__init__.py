"""Nexmark: an auction site's persons, auctions and bids; queries 1, 2, 5, 7 and 8, the five of Grizzly's evaluation."""
