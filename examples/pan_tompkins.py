"""Pan-Tompkins: find the heart beats in an electrocardiogram of 200 samples a second."""

import penstock as pk


def energy(ecg: pk.Signal) -> pk.Signal:
    """Filter to the band of QRS complexes, differentiate, square, and average over 150 ms."""

    def old(x: pk.Signal, by: str) -> pk.Signal:
        return x.shift(by).or_else(0 * x)  # before the first sample there was silence

    low = pk.feedback(lambda y: 2 * y - y[2] + (ecg - 2 * old(ecg, "30ms") + old(ecg, "60ms")))
    kept = old(low, "80ms") - old(low, "85ms") - low / 32 + old(low, "160ms") / 32
    high = pk.feedback(lambda y: y + kept)
    slope = (2 * high + old(high, "5ms") - old(high, "15ms") - 2 * old(high, "20ms")) / 8
    return (slope * slope).rolling("150ms").mean()


def beats(ecg: pk.Signal) -> pk.Signal:
    """True around each beat: the energy is above a third of the highest of the seconds around it."""
    made = energy(ecg)
    return made > made.rolling("3s").max().shift("-1500ms") / 3
