"""Emit a kernel as LLVM assembly text.

A module has two functions. `penstock_entry(ptr frame)` is the ABI: one 8-byte word per parameter (a buffer's
address, an extended integer, the bits of a float), then one per literal of the query, so kernels that differ
in literals alone share one module. It unpacks the frame and calls the kernel proper, whose buffer parameters
are `noalias`: this lets LLVM vectorise loops over several buffers without run-time overlap checks. The inner
call is never inlined, which preserves the attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from penstock.codegen.values import ENTRY, INNER, NameCounter, ValueWriter, alignment, memory_name, type_name
from penstock.codegen.vectors import NotInLanesError, VectorWriter, lanes_of
from penstock.loop.nodes import (
    I64,
    Assign,
    Atomic,
    Block,
    Buffer,
    Declare,
    For,
    If,
    Kernel,
    Literal,
    Return,
    Stmt,
    Store,
    Type,
    Var,
    While,
)

# --- Optimisation levels of compiled kernels.
#
# Measured on the fold kernel of the YSB query (633 lines of LLVM; LLVM built with assertions, as PyPI's
# llvmlite is; two busy cores): QUICK 9 ms of CPU time, FULL 100 ms; FULL's code ran 2.3 times as fast.


class OptimisationLevel(StrEnum):
    QUICK = "quick"  # no optimisation, LLVM's fast instruction selector: for the first rows
    FULL = "full"  # optimised and vectorised


_LOCAL_ALIGNMENT = 64
_RARE = 0  # metadata of rarely taken branches; loops are numbered from 1
_SCALAR = ', !{!"llvm.loop.vectorize.enable", i1 false}, !{!"llvm.loop.unroll.disable"}'
# Interleave two iterations; LLVM would interleave four and add another vector loop for the remainder.
_BRIEF = ', !{!"llvm.loop.interleave.count", i32 2}'
_UNROLLED = 4  # iterations
_ATOMIC_INTEGER = frozenset({"add", "sub", "and", "or", "xor"})


def llvm_module(kernel: Kernel, effort: OptimisationLevel = OptimisationLevel.FULL) -> str:
    """Emit a whole module; the caller sets its target."""
    writer = KernelWriter(kernel, effort)
    inner = writer.inner()
    parts = [*sorted(writer.values.declarations), *inner, *_entry(kernel), *writer.metadata()]
    return "\n".join(parts) + "\n"


class KernelWriter:
    """Emits statements in order and tracks the open basic block."""

    def __init__(self, kernel: Kernel, effort: OptimisationLevel) -> None:
        self.kernel = kernel
        self._effort = effort
        self.names = NameCounter()
        self.values = ValueWriter(self.names)
        self._assigned = frozenset(_assigned(kernel.body))
        self._allocations: list[str] = []
        self._loops: list[str] = []  # the metadata of each loop
        self._block = "entry"
        self._open = True

    def inner(self) -> list[str]:
        parameters = self._parameters()
        self._local_buffers()
        self._statements(self.kernel.body)
        if self._open:
            self._terminate("ret i64 0")
        head = f"define internal i64 @{INNER}({parameters}) noinline nounwind {{"
        return [head, "entry:", *self._allocations, *self.values.lines, "}"]

    def metadata(self) -> Iterator[str]:
        """Emit the metadata of rare branches and loops. Otherwise, LLVM's defaults measured best."""
        yield f'!{_RARE} = !{{!"branch_weights", i32 1, i32 1048576}}'
        for number, said in enumerate(self._loops, 1):
            yield f"!{number} = distinct !{{!{number}{said}}}"

    def _repeat(self, text: str, said: str = "") -> None:
        """End a loop's last block; attach the loop's metadata to the back edge."""
        self._loops.append(said)
        self._terminate(f"{text}, !llvm.loop !{len(self._loops)}")

    def _parameters(self) -> str:
        stored = frozenset(_stored(self.kernel.body))
        return ", ".join(
            self._parameter(param, stored) for param in (*self.kernel.params, *self.kernel.literals)
        )

    def _parameter(self, parameter: Var | Buffer | Literal, stored: frozenset[str]) -> str:
        name = self.names.value()
        if isinstance(parameter, Buffer):
            self.values.buffers[parameter.name] = name
            return f"ptr noalias {'' if parameter.name in stored else 'readonly '}{name}"
        if isinstance(parameter, Literal):
            self.values.registers[parameter.name] = name
        else:
            self.define(parameter, name)
        return f"{type_name(parameter.type)} {name}"

    def _local_buffers(self) -> None:
        for buffer in self.kernel.locals:
            name = self.names.value()
            self.values.buffers[buffer.name] = name
            shape = f"[{buffer.length} x {memory_name(buffer.type)}]"
            self._allocations.append(f"  {name} = alloca {shape}, align {_LOCAL_ALIGNMENT}")

    def define(self, var: Var, value: str) -> None:
        """Bind a variable: to a register, or to a stack slot if it is assigned again."""
        if var.name not in self._assigned:
            self.values.registers[var.name] = value
            return
        slot = self.values.slots.get(var.name)
        if slot is None:
            slot = self.values.slots[var.name] = self.names.value()
            self._allocations.append(f"  {slot} = alloca {type_name(var.type)}")
        self.set(var, value)

    def set(self, var: Var, value: str) -> None:
        self.values.line(f"  store {type_name(var.type)} {value}, ptr {self.values.slots[var.name]}")

    # -- control flow ---------------------------------------------------------------------------

    def _terminate(self, text: str) -> None:
        self.values.line(f"  {text}")
        self._open = False

    def _start(self, label: str) -> None:
        self.values.line(f"{label}:")
        self.values.forget()
        self._block, self._open = label, True

    def _jump(self, label: str) -> None:
        if self._open:
            self._terminate(f"br label %{label}")

    def _branch(self, condition: str, yes: str, no: str, rare: bool = False) -> None:
        """Branch. A branch that returns from the kernel is marked as rare, so that LLVM keeps the loop in registers."""
        weights = f", !prof !{_RARE}" if rare else ""
        self._terminate(f"br i1 {condition}, label %{yes}, label %{no}{weights}")

    def _statements(self, block: Block) -> None:
        for stmt in block:
            if not self._open:  # statements after a return are unreachable
                return
            self.values.forget()
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        values = self.values
        match stmt:
            case Declare(var, value):
                self.define(var, values.value(value))
            case Assign(var, value):
                self.set(var, values.value(value))
            case Store(buffer, index, value):
                values.store(buffer, values.element(buffer, index), values.value(value))
            case If():
                self._if(stmt)
            case For() if not self._as_vectors(stmt):
                self._for(stmt)
            case While():
                self._while(stmt)
            case Atomic():
                self._atomic(stmt)
            case Return(value):
                self._terminate(f"ret i64 {values.value(value)}")

    def _if(self, stmt: If) -> None:
        then, done = self.names.label(), self.names.label()
        otherwise = self.names.label() if stmt.orelse else done
        self._branch(self.values.value(stmt.condition), then, otherwise, rare=_returns(stmt.then))
        self._start(then)
        self._statements(stmt.then)
        leaves = self._open
        self._jump(done)
        if stmt.orelse:
            self._start(otherwise)
            self._statements(stmt.orelse)
            leaves = leaves or self._open
            self._jump(done)
        if leaves or not stmt.orelse:
            self._start(done)

    def _for(self, stmt: For) -> None:
        """Emit a loop; an unrolled one is a loop in steps of four, then a loop over the remainder."""
        start, stop = self.values.value(stmt.start), self.values.value(stmt.stop)
        if stmt.unrolled and self._effort is OptimisationLevel.FULL:
            fours = self.values.op(f"and i64 {self.values.op(f'sub i64 {stop}, {start}')}, -{_UNROLLED}")
            upto = self.values.op(f"add i64 {start}, {fours}")
            self._loop(stmt, start, upto, _UNROLLED)
            start = self.values.combine("max", start, upto, I64)  # upto < start if stop < start
        self._loop(stmt, start, stop, 1)

    def _loop(self, stmt: For, start: str, stop: str, turns: int) -> None:
        """Emit a loop in rotated form (guard, then do-while), which the vectoriser requires."""
        body, done = self.names.label(), self.names.label()
        outer = self.values.scalar, self.values.fixed
        held = self._hold_parameters() if _leaves(stmt.body) else None
        if held is not None:
            self.values.scalar, self.values.fixed = True, frozenset(self.values.registers)
        before = self._block
        self._branch(self.values.op(f"icmp slt i64 {start}, {stop}"), body, done)
        self._start(body)
        index, following = self.names.value(), self.names.value()
        phi = len(self.values.lines)
        self.values.line("")
        for turn in range(turns):
            now = self.values.op(f"add nsw i64 {index}, {turn}") if turn and self._open else index
            self.values.registers[stmt.var.name] = now
            self._statements(stmt.body)
        again = ""
        if self._open:
            again = f", [ {following}, %{self._block} ]"
            self.values.line(f"  {following} = add nsw i64 {index}, {turns}")
            more = self.values.op(f"icmp slt i64 {following}, {stop}")
            self._repeat(f"br i1 {more}, label %{body}, label %{done}", _said(stmt))
        self.values.lines[phi] = f"  {index} = phi i64 [ {start}, %{before} ]{again}"
        self._start(done)
        self.values.scalar, self.values.fixed = outer
        if held is not None:
            self.values.buffers, self.values.registers = held

    def _as_vectors(self, loop: For) -> bool:
        """Emit a loop as vector code; on failure, remove the emitted lines and return False."""
        if not lanes_of(loop):
            return False
        written, writer = len(self.values.lines), VectorWriter(self.values, self, loop)
        try:
            for stmt in loop.body:
                writer.statement(stmt)
        except NotInLanesError:
            del self.values.lines[written:]
            return False
        return True

    def _hold_parameters(self) -> tuple[dict[str, str], dict[str, str]]:
        """Rename the parameters for one loop through an empty inline assembly.

        A kernel has more parameters than the machine has registers, and LLVM reloads long-lived values from
        the stack in every iteration; it keeps a value that is defined just before a hot loop in a register.
        Loops with a return cannot be vectorised, so hiding the provenance of a pointer costs nothing. Unused
        names vanish.
        """
        held = self.values.buffers, self.values.registers
        self.values.buffers, self.values.registers = dict(held[0]), dict(held[1])
        for parameter in self.kernel.params:
            if isinstance(parameter, Buffer):
                old = self.values.buffers[parameter.name]
                self.values.buffers[parameter.name] = self.values.op(f'call ptr asm "", "=r,0"(ptr {old})')
            elif parameter.type.bits == 64 and parameter.name in self.values.registers:
                old, kind = self.values.registers[parameter.name], type_name(parameter.type)
                if kind == "i64":
                    renewed = self.values.op(f'call i64 asm "", "=r,0"(i64 {old})')
                    self.values.registers[parameter.name] = renewed
        return held

    def _while(self, stmt: While) -> None:
        head, body, done = self.names.label(), self.names.label(), self.names.label()
        self._jump(head)
        self._start(head)
        self._branch(self.values.value(stmt.condition), body, done)
        self._start(body)
        self._statements(stmt.body)
        if self._open:
            self._repeat(f"br label %{head}")
        self._start(done)

    # -- atomics --------------------------------------------------------------------------------

    def _atomic(self, stmt: Atomic) -> None:
        """Combine in memory. Relaxed order suffices: tasks are joined before the result is read."""
        index, value = self.values.value(stmt.index), self.values.value(stmt.value)
        address = self.values.address(stmt.buffer, index)
        operation = _atomic_operation(stmt.op, stmt.buffer.type)
        if operation is None:
            raw = self._exchange(stmt, address, value)
        else:
            memory = memory_name(stmt.buffer.type)
            operand = self.values.to_memory(value, stmt.buffer.type)
            raw = self.values.op(f"atomicrmw {operation} ptr {address}, {memory} {operand} monotonic")
        if stmt.old is not None:
            self.define(stmt.old, self.values.from_memory(raw, stmt.buffer.type))

    def _exchange(self, stmt: Atomic, address: str, value: str) -> str:
        """Retry compare-and-exchange until no other thread interferes; return the old bits."""
        values, type = self.values, stmt.buffer.type
        memory, bits = memory_name(type), f"i{max(type.bits, 8)}"
        loop, done = self.names.label(), self.names.label()
        first = values.op(f"load atomic {bits}, ptr {address} monotonic, align {alignment(type)}")
        before = self._block
        self._jump(loop)
        self._start(loop)
        old, found = self.names.value(), self.names.value()
        values.line(f"  {old} = phi {bits} [ {first}, %{before} ], [ {found}, %{loop} ]")
        typed = values.op(f"bitcast {bits} {old} to {memory}")
        combined = values.combine(stmt.op, values.from_memory(typed, type), value, type)
        wanted = values.op(f"bitcast {memory} {values.to_memory(combined, type)} to {bits}")
        pair = values.op(f"cmpxchg ptr {address}, {bits} {old}, {bits} {wanted} monotonic monotonic")
        values.line(f"  {found} = extractvalue {{ {bits}, i1 }} {pair}, 0")
        self._branch(values.op(f"extractvalue {{ {bits}, i1 }} {pair}, 1"), done, loop)
        self._start(done)
        return typed


def _atomic_operation(op: str, type: Type) -> str | None:
    """Name the native read-modify-write operation, or None if there is none."""
    if type.is_float:
        return {"add": "fadd", "sub": "fsub"}.get(op)
    if op in _ATOMIC_INTEGER:
        return op
    if op in ("min", "max"):
        return op if type.kind == "int" else f"u{op}"
    return None


def _assigned(block: Block) -> Iterator[str]:
    for stmt in block:
        match stmt:
            case Assign(var, _):
                yield var.name
            case For() | While():
                yield from _assigned(stmt.body)
            case If():
                yield from _assigned(stmt.then)
                yield from _assigned(stmt.orelse)


def _said(loop: For) -> str:
    return _SCALAR if loop.scalar else _BRIEF if loop.brief else ""


def _leaves(block: Block) -> bool:
    """Whether the block contains a return."""
    for stmt in block:
        match stmt:
            case Return():
                return True
            case For() | While() if _leaves(stmt.body):
                return True
            case If() if _leaves(stmt.then) or _leaves(stmt.orelse):
                return True
    return False


def _returns(block: Block) -> bool:
    return bool(block) and isinstance(block[-1], Return)


def _stored(block: Block) -> Iterator[str]:
    for stmt in block:
        match stmt:
            case Store(buffer) | Atomic(_, buffer):
                yield buffer.name
            case For() | While():
                yield from _stored(stmt.body)
            case If():
                yield from _stored(stmt.then)
                yield from _stored(stmt.orelse)


def _entry(kernel: Kernel) -> Iterator[str]:
    """Emit the function that unpacks the frame."""
    names, arguments = NameCounter(), []
    yield f"define i64 @{ENTRY}(ptr noalias readonly %frame) nounwind {{"
    for position, parameter in enumerate((*kernel.params, *kernel.literals)):
        address, value = names.value(), names.value()
        type = "ptr" if isinstance(parameter, Buffer) else memory_name(parameter.type)
        yield f"  {address} = getelementptr inbounds i64, ptr %frame, i64 {position}"
        yield f"  {value} = load {type}, ptr {address}, align 8"
        if type == "i8" and parameter.type.kind == "bool":
            flag = names.value()
            yield f"  {flag} = icmp ne i8 {value}, 0"
            type, value = "i1", flag
        arguments.append(f"{type} {value}")
    result = names.value()
    yield f"  {result} = call i64 @{INNER}({', '.join(arguments)})"
    yield f"  ret i64 {result}"
    yield "}"
