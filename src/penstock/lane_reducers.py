"""Choose how each reduction over frames is computed, and make its kernels callable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from penstock.ir import nodes as ir
from penstock.lower.lanes import LaneReduction
from penstock.lower.machine import machine_type
from penstock.lower.slide import SlideSpec, build_slide, slide_monoids
from penstock.programs import Workshop, output_columns
from penstock.runtime.lanes.reducers import (
    CountReducer,
    EndReducer,
    KernelReducer,
    ListReducer,
    Reducer,
    SlideCall,
)
from penstock.runtime.programs import OutputCall
from penstock.types.windows import Calendar, Count

Numbered = tuple[int, LaneReduction]


@dataclass(frozen=True)
class LaneReducers:
    """The reducers of one windowed object. `overlaps` says that a row may be in several frames."""

    ready: ir.Object
    reductions: tuple[LaneReduction, ...]
    overlaps: bool
    workshop: Workshop
    threads: int

    def reducers(self) -> list[Reducer]:
        numbered = list(enumerate(self.reductions))
        in_kernels = [each for each in numbered if self._fits_kernel(each[1])]
        others = [self._other(*each) for each in numbered if each not in in_kernels]
        in_kernels.sort(key=self._pass_of)
        passes = groupby(in_kernels, self._pass_of)
        return [*others, *(self._kernel(span, way, list(group)) for (span, way), group in passes)]

    def _fits_kernel(self, reduction: LaneReduction) -> bool:
        """Whether the state has a fixed size and holds machine values."""
        if reduction.function in _OTHERS or (reduction.function == "count" and _counts_rows(reduction)):
            return False
        if reduction.function in ("min", "max", "min_by", "max_by"):
            return all(self._is_machine(name) for name in reduction.args)
        return True

    def _is_machine(self, name: str) -> bool:
        return machine_type(self.ready.schema.field(name).type) is not None

    def _other(self, place: int, reduction: LaneReduction) -> Reducer:
        places, span, where = (place,), reduction.span, reduction.where
        match reduction.function:
            case "count":
                return CountReducer(places, span)
            case "first" | "last" as end:
                skips = bool(dict(reduction.options).get("ignore_nulls"))
                return EndReducer(
                    places, span, reduction.args[0], where, end == "last", skips, reduction.type
                )
            case "list":
                return ListReducer(places, span, reduction.args[0], where, reduction.type)
            case _:
                raise NotImplementedError(reduction.function)

    # -- passes over frames --------------------------------------------------------------------------

    def _pass_of(self, each: Numbered) -> tuple[int, str]:
        """Reductions over the same span by the same algorithm share a pass."""
        return each[1].span, self._algorithm((each[1],))

    def _algorithm(self, reductions: Sequence[LaneReduction]) -> str:
        if not self.overlaps:
            return "recompute"
        monoids = slide_monoids(self._spec(reductions, frozenset(), "recompute"))
        return "subtract-on-evict" if all(each.invertible for each in monoids) else "two-stacks"

    def _kernel(self, span: int, algorithm: str, group: list[Numbered]) -> KernelReducer:
        several = tuple(each for _, each in group)
        columns = {name for each in several for name in (*each.args, *((each.where,) if each.where else ()))}
        return KernelReducer(
            tuple(place for place, _ in group),
            span,
            tuple(columns),
            tuple(each.type for each in several),
            partial(self._slide, several, algorithm),
            self.threads,
        )

    def _spec(
        self, reductions: Sequence[LaneReduction], nullable: frozenset[str], algorithm: str
    ) -> SlideSpec:
        return SlideSpec(
            self.ready.schema,
            self.ready.time,
            tuple(each.as_ir() for each in reductions),
            tuple(each.type for each in reductions),
            nullable,
            algorithm,
        )

    def _slide(
        self, reductions: tuple[LaneReduction, ...], algorithm: str, nullable: frozenset[str]
    ) -> SlideCall:
        kernel = build_slide(self._spec(reductions, nullable, algorithm))
        key = (self.ready.name, "slide", reductions, algorithm, nullable)
        call = self.workshop.call(key, lambda: kernel.kernel)
        scratch = tuple((each.buffer.name, each.buffer.type, each.length) for each in kernel.scratch)
        return SlideCall(OutputCall(call, output_columns(kernel.outputs), kernel.bindings), scratch)


_OTHERS = frozenset({"first", "last", "list", "median", "quantile", "mode", "count_distinct"})


def _counts_rows(reduction: LaneReduction) -> bool:
    return not reduction.args and reduction.where is None


def may_overlap(body: ir.Body) -> bool:
    """Whether a row of the object can be in several of its frames."""
    match body:
        case ir.Lookback():
            return True
        case ir.Reduce(domain=domain) | ir.Attach(domain=domain):
            match domain:
                case ir.Grid(size=size, every=every) | Count(size=size, every=every):
                    return size > every
                case Calendar(size=step, every=every):
                    return step != every
    return False
