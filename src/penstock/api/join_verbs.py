"""The verbs that join two streams."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from penstock.api.join import Options, joined, joined_asof
from penstock.api.join_rolling import RollingJoined, joined_rolling
from penstock.errors import ExpressionTypeError
from penstock.plan.nodes import Plan
from penstock.types.duration import Duration

if TYPE_CHECKING:
    from penstock.api.stream import Stream


class JoinVerbs:
    """The join verbs of a stream."""

    __slots__ = ()

    @property
    @abstractmethod
    def raw_plan(self) -> Plan:
        """The plan under construction."""

    @abstractmethod
    def with_other(self, plan: Plan, other: Stream) -> Stream:
        """Return the stream of a plan over the data of two streams."""

    def join(
        self,
        other: Stream,
        on: object = None,
        *,
        left_on: object = None,
        right_on: object = None,
        window: object = None,
        how: str = "inner",
        where: object = None,
        within: object = None,
        algorithm: str = "auto",
        suffix: str = "_right",
        optimise: str | None = None,
    ) -> Stream:
        """Join rows with equal keys that share a window, lie `within=(lo, hi)` of each other, or match a table.

        `how` is inner, left, right, full, semi or anti; `where=` is a further condition on
        `pk.left("x")` and `pk.right("y")`. The result's time is `join_time`, the later of the two times.

        >>> import pyarrow as pa, penstock as pk
        >>> bids = pk.from_arrow(pa.table({"t": [1, 5, 12], "k": ["a", "b", "a"]}), time="t", name="bids")
        >>> asks = pk.from_arrow(pa.table({"t": [3, 14], "k": ["a", "a"]}), time="t", name="asks")
        >>> bids.join(asks, on="k", window=pk.tumbling(10)).collect().to_pylist()[0]
        {'window_start': 0, 'window_end': 10, 'k': 'a', 't': 1, 't_right': 3, 'join_time': 3}
        """
        options = Options(window, within, how, where, algorithm, suffix, optimise)
        second = _joinable(other, "join")
        return self.with_other(joined(self.raw_plan, second.raw_plan, on, left_on, right_on, options), second)

    def join_asof(
        self,
        other: Stream,
        by: object = None,
        tolerance: Duration | None = None,
        direction: str = "backward",
        allow_exact_matches: bool = True,
        suffix: str = "_right",
    ) -> Stream:
        """Join every row with the last row of the other stream up to its time, of the same key.

        `direction="forward"` takes the next row, `"nearest"` the nearer of the two; `tolerance=` limits the
        distance in time. Of several equally near rows, the last in order is taken.

        >>> import pyarrow as pa, penstock as pk
        >>> trades = pk.from_arrow(pa.table({"t": [3, 9]}), time="t", name="trades")
        >>> quotes = pk.from_arrow(pa.table({"t": [1, 2, 9], "p": [5, 6, 7]}), time="t", name="quotes")
        >>> trades.join_asof(quotes).collect().to_pydict()
        {'t': [3, 9], 't_right': [2, 9], 'p': [6, 7]}
        """
        second = _joinable(other, "join_asof")
        plan = joined_asof(
            self.raw_plan, second.raw_plan, by, tolerance, direction, allow_exact_matches, suffix
        )
        return self.with_other(plan, second)

    def join_rolling(self, other: Stream, by: object = None, *, within: object) -> RollingJoined:
        """Aggregate, for every row, the rows of the other stream from `lo` to `hi` around its time; `.agg(...)` follows."""
        second = _joinable(other, "join_rolling")
        return joined_rolling(
            self.raw_plan, second.raw_plan, by, within, lambda plan: self.with_other(plan, second)
        )


def _joinable(other: object, what: str) -> Stream:
    from penstock.api.stream import Stream  # noqa: PLC0415 - import cycle

    if not isinstance(other, Stream):
        raise ExpressionTypeError(
            f"{what} takes a stream, or a table made with pk.table(...), not a {type(other).__name__}"
        )
    return other
