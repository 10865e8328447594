"""Trend: is the mean of the last 20 seconds above that of the last 50? (TiLT's running example.)"""

import penstock as pk


def trend(price: pk.Signal, short: str | int = "20s", long: str | int = "50s") -> pk.Signal:
    """Tell, at every instant, whether the short mean is above the long one."""
    return price.rolling(short).mean() > price.rolling(long).mean()
