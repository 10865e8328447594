// Hand-written reference for sliding windows: the two-stacks algorithm of Hammer Slide, vectorised.
//
//   a window of `size` rows every `slide` rows; SUM, MIN or AVG of each; all windows that are full
//
// Of the paper: the input is the flat buffer, nothing is copied; one aggregate per slide enters a ring of
// size / slide aggregates, which holds the back stack where windows have still to leave and what has
// entered since where they have left; a flip is one pass backwards over it; slides are aggregated with SIMD.
// Beyond the paper: a slide that does not divide the size is cut in two at size % slide, so each row is still
// read once; and (`scans`) where it does, the stacks themselves are SIMD too, as scans inside a register, which
// at slide 1 is four to seven times as fast. `scans = 0` gives the paper's own form.
//
// Sums of int32 are int64: a 32-bit sum would be another, wrong answer. Data holds neither null nor NaN.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

constexpr int kBytes = 32;  // one AVX2 register; compilers split it where there is none

template <class T, int N>
struct Pack {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};

template <class T>
constexpr int kLanes = kBytes / sizeof(T);

template <class T>
using Vec = typename Pack<T, kLanes<T>>::type;

// Lanes move by templates over their numbers: a shuffle's pattern must be a constant.
template <class T>
using Indices = std::make_integer_sequence<int, kLanes<T>>;

template <int D, class V, int... I>
V moved_up(V v, V fill, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, fill, (I < D ? int(sizeof...(I)) + I : I - D)...);
}
template <int D, class V, int... I>
V moved_down(V v, V fill, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, fill, I + D...);  // beyond the end of v come the lanes of fill
}
template <int First, class V, int... I>
V every_other(V a, V b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, 2 * I + First...);
}
template <int Lane, class V, int... I>
V spread(V v, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, v, (I * 0 + Lane)...);
}

// What is aggregated: `In` is read, `State` is combined, `Out` is written.
template <class I, class S>
struct Sum {
    using In = I;
    using State = S;
    using Out = S;
    static constexpr State identity = 0;
    template <class V>
    static V combine(V a, V b) { return a + b; }
    static Out finish(State state, int64_t) { return state; }
    static Vec<Out> finish(Vec<State> state, int64_t) { return state; }
};

template <class I>
struct Min {
    using In = I;
    using State = I;
    using Out = I;
    static constexpr State identity =
        std::numeric_limits<I>::has_infinity ? std::numeric_limits<I>::infinity() : std::numeric_limits<I>::max();
    template <class V>
    static V combine(V a, V b) { return a < b ? a : b; }
    static Out finish(State state, int64_t) { return state; }
    static Vec<Out> finish(Vec<State> state, int64_t) { return state; }
};

template <class I, class S>
struct Avg : Sum<I, S> {
    using Out = double;
    static Out finish(S state, int64_t size) { return double(state) / double(size); }
    static Vec<Out> finish(Vec<S> state, int64_t size) {
        return __builtin_convertvector(state, Vec<Out>) / double(size);
    }
};

template <class Op>
struct Algebra {
    using In = typename Op::In;
    using State = typename Op::State;
    using V = Vec<State>;
    using Ids = Indices<State>;
    static constexpr int N = kLanes<State>;

    static V constant(State value) { return V{} + value; }

    static V load(const In *from) {
        typename Pack<In, N>::type narrow;
        std::memcpy(&narrow, from, sizeof narrow);
        return __builtin_convertvector(narrow, V);
    }

    template <int D = 1>
    static V prefixes(V v) {  // lane i becomes the aggregate of lanes 0..i
        if constexpr (D < N)
            return prefixes<2 * D>(Op::combine(v, moved_up<D>(v, constant(Op::identity), Ids{})));
        else
            return v;
    }

    template <int D = 1>
    static V suffixes(V v) {  // lane i becomes the aggregate of lanes i..N-1
        if constexpr (D < N)
            return suffixes<2 * D>(Op::combine(v, moved_down<D>(v, constant(Op::identity), Ids{})));
        else
            return v;
    }

    static V neighbours(V a, V b) {  // lane i becomes the aggregate of lanes 2i and 2i+1 of both in a row
        return Op::combine(every_other<0>(a, b, Ids{}), every_other<1>(a, b, Ids{}));
    }

    template <int Length>
    static V runs(const In *from) {  // N aggregates of `Length` rows each, side by side
        if constexpr (Length == 1)
            return load(from);
        else
            return neighbours(runs<Length / 2>(from), runs<Length / 2>(from + N * (Length / 2)));
    }

    template <int Count>
    static V totals(const V *lanes) {  // reduce each of N registers to one lane, all at once
        if constexpr (Count == 1)
            return *lanes;
        else {
            V half[Count / 2];
            for (int i = 0; i < Count / 2; i++) half[i] = neighbours(lanes[2 * i], lanes[2 * i + 1]);
            return totals<Count / 2>(half);
        }
    }

    // Aggregate whole registers of [from, from + length) into lanes, leaving the rest.
    static V lanewise(const In *from, int64_t length) {
        if constexpr (std::is_same_v<In, int32_t> && std::is_same_v<State, int64_t>)
            return widened(from, length);
        else
            return plain(from, length);
    }

    // Sums of int32, eight rows at a time: made unsigned, two of them lie in each 64-bit lane, one to be
    // masked and one to be shifted, which takes fewer instructions than widening each.
    static V widened(const int32_t *from, int64_t length) {
        using Pairs = Vec<uint64_t>;
        constexpr uint64_t kBias = 0x8000000080000000;
        Pairs low = {}, high = {}, low2 = {}, high2 = {};
        int64_t i = 0;
        for (; i + 4 * N <= length; i += 4 * N) {
            Pairs rows, rows2;
            std::memcpy(&rows, from + i, sizeof rows);
            std::memcpy(&rows2, from + i + 2 * N, sizeof rows2);
            rows ^= kBias;
            rows2 ^= kBias;
            low += rows & 0xffffffff;
            high += rows >> 32;
            low2 += rows2 & 0xffffffff;
            high2 += rows2 >> 32;
        }
        V sum = V(low + high + low2 + high2) - (i / N << 31);
        for (; i + N <= length; i += N) sum += load(from + i);
        return sum;
    }

    static V plain(const In *from, int64_t length) {
        V one = constant(Op::identity), two = one, three = one, four = one;
        int64_t i = 0;
        for (; i + 4 * N <= length; i += 4 * N) {
            one = Op::combine(one, load(from + i));
            two = Op::combine(two, load(from + i + N));
            three = Op::combine(three, load(from + i + 2 * N));
            four = Op::combine(four, load(from + i + 3 * N));
        }
        for (; i + N <= length; i += N) one = Op::combine(one, load(from + i));
        return Op::combine(Op::combine(one, two), Op::combine(three, four));
    }

    static State total(const In *from, int64_t length) {
        State result = Op::identity;
        if (length >= 2 * N) {
            const V lanes = prefixes(lanewise(from, length));
            result = lanes[N - 1];
        } else {
            for (int64_t i = 0; i < length / N * N; i++) result = Op::combine(result, State(from[i]));
        }
        for (int64_t i = length / N * N; i < length; i++) result = Op::combine(result, State(from[i]));
        return result;
    }

    // N aggregates of `length` rows each, side by side. Reads up to N rows further than they are long.
    static V several(const In *from, int64_t length) {
        if (length == 1) return runs<1>(from);
        if (length == 2) return runs<2>(from);
        if (length == 4) return runs<4>(from);
        if (length == 8) return runs<8>(from);
        const int64_t rest = length % N;
        V kept, lanes[N];
        for (int i = 0; i < N; i++) kept[i] = State(i);
        for (int i = 0; i < N; i++) {
            const In *start = from + i * length;
            lanes[i] = lanewise(start, length);
            if (rest) {
                const V tail = load(start + length - rest);
                lanes[i] = Op::combine(lanes[i], kept < State(rest) ? tail : constant(Op::identity));
            }
        }
        return totals<N>(lanes);
    }
};

// The windows of one array. `ring` holds, at i, the aggregate of panes i..q-1 of the last block (the back
// stack) until window i is written, and after that pane q + i, to be flipped when the block is done.
template <class Op>
class TwoStacks {
    using A = Algebra<Op>;
    using In = typename Op::In;
    using State = typename Op::State;
    using Out = typename Op::Out;
    using V = Vec<State>;
    static constexpr int N = A::N;

   public:
    TwoStacks(const In *in, int64_t rows, int64_t size, int64_t slide, bool scans, Out *out)
        : in_(in), rows_(rows), size_(size), slide_(slide), panes_(size / slide), head_(size % slide), out_(out) {
        windows_ = rows < size ? 0 : (rows - size) / slide + 1;
        scans_ = scans && panes_ >= N && head_ == 0;  // heads cost the lanes more than the scans save
        direct_ = slide == 1;  // a pane is a row: the input is the ring's second half
    }

    int64_t run() {
        if (size_ <= slide_)
            apart();
        else if (windows_ > 0)
            overlap();
        return windows_;
    }

   private:
    void apart() {  // windows that share no row
        for (int64_t w = 0; w < windows_; w++) out_[w] = Op::finish(A::total(in_ + w * slide_, size_), size_);
    }

    void overlap() {
        ring_.resize(panes_);
        if (!direct_)
            for (int64_t p = 0; p < panes_; p++) ring_[p] = A::total(in_ + p * slide_, slide_);
        for (int64_t first = 0; first < windows_; first += panes_) {
            direct_ ? flip(in_ + first) : flip(ring_.data());
            block(first, std::min(panes_, windows_ - first));
        }
    }

    // Turn panes 0..q-1 into the aggregates of panes i..q-1.
    template <class T>
    void flip(const T *panes) {
        int64_t i = panes_;
        State whole = Op::identity;
        if (scans_) {
            V carry = A::constant(whole);
            for (; i >= N; i -= N) {
                const V scan = A::suffixes(pane_lanes(panes + i - N));
                const V back = Op::combine(scan, carry);
                std::memcpy(&ring_[i - N], &back, sizeof back);
                carry = Op::combine(carry, spread<0>(scan, Indices<State>{}));
            }
            whole = carry[0];
        }
        while (i-- > 0) ring_[i] = whole = Op::combine(State(panes[i]), whole);
    }

    static V pane_lanes(const In *panes) { return A::load(panes); }
    template <class T, class = std::enable_if_t<!std::is_same_v<T, In>>>
    static V pane_lanes(const T *panes) {
        V v;
        std::memcpy(&v, panes, sizeof v);
        return v;
    }

    // Write the `count` windows that begin in the block at `first`, while its followers enter the front stack.
    void block(int64_t first, int64_t count) {
        State front = Op::identity;
        int64_t i = scans_ ? block_lanes(first, count, front) : 0;
        for (; i < count; i++) {
            const In *entering = in_ + (first + i + panes_) * slide_;
            const State head = A::total(entering, head_);
            out_[first + i] = Op::finish(Op::combine(Op::combine(ring_[i], front), head), size_);
            if (first + i + 1 == windows_) return;
            const State pane = Op::combine(head, A::total(entering + head_, slide_ - head_));
            front = Op::combine(front, pane);
            ring_[i] = pane;
        }
    }

    // The same, N windows at a time, as long as their rows and what `several` reads beyond them exist.
    int64_t block_lanes(int64_t first, int64_t count, State &front) {
        V carry = A::constant(front);
        const int64_t safe = (rows_ - N) / slide_ - panes_ - N - first;
        const int64_t end = std::min(count - N, safe);
        int64_t i = 0;
        if (direct_)
            for (; i <= end; i += N) write_lanes(first, i, A::load(in_ + first + i + panes_), carry);
        else
            for (; i <= end; i += N) {
                const V panes = A::several(in_ + (first + i + panes_) * slide_, slide_);
                write_lanes(first, i, panes, carry);
                std::memcpy(&ring_[i], &panes, sizeof panes);
            }
        front = carry[0];
        return i;
    }

    void write_lanes(int64_t first, int64_t i, V panes, V &carry) {
        V back;
        std::memcpy(&back, &ring_[i], sizeof back);
        const V scan = A::prefixes(panes);
        const V before = Op::combine(carry, moved_up<1>(scan, A::constant(Op::identity), Indices<State>{}));
        const Vec<Out> result = Op::finish(Op::combine(back, before), size_);
        std::memcpy(out_ + first + i, &result, sizeof result);
        carry = Op::combine(carry, spread<N - 1>(scan, Indices<State>{}));
    }

    const In *in_;
    int64_t rows_, size_, slide_, panes_, head_, windows_ = 0;
    Out *out_;
    bool scans_ = false, direct_ = false;
    std::vector<State> ring_;
};

template <class Op>
int64_t run(const void *in, int64_t rows, int64_t size, int64_t slide, bool scans, void *out) {
    return TwoStacks<Op>(static_cast<const typename Op::In *>(in), rows, size, slide, scans,
                         static_cast<typename Op::Out *>(out))
        .run();
}

struct Mean {
    double sum = 0;
    int64_t rows = 0;
    Mean operator+(const Mean &other) const { return {sum + other.sum, rows + other.rows}; }
};

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// The rows of [start, end) at the head of `rows`, every time looked at. Blocks inside are added with SIMD.
int64_t take_pane(const int64_t *ts, const double *value, int64_t rows, int64_t end, Mean &pane) {
    constexpr int64_t kBlock = 64;
    int64_t i = 0;
    for (; i + kBlock <= rows; i += kBlock) {
        int64_t outside = 0;
        for (int64_t j = 0; j < kBlock; j++) outside |= end - 1 - ts[i + j];
        if (outside < 0) break;
        pane = pane + Mean{Algebra<Sum<double, double>>::total(value + i, kBlock), kBlock};
    }
    for (; i < rows && ts[i] < end; i++) pane = pane + Mean{value[i], 1};
    return i;
}

}  // namespace

extern "C" {

// Aggregate count windows; `kind` is sum, min, avg of int32, then of float64. Gives the number of windows.
int64_t swag_count(int32_t kind, const void *in, int64_t rows, int64_t size, int64_t slide, int32_t scans, void *out) {
    switch (kind) {
        case 0: return run<Sum<int32_t, int64_t>>(in, rows, size, slide, scans, out);
        case 1: return run<Min<int32_t>>(in, rows, size, slide, scans, out);
        case 2: return run<Avg<int32_t, int64_t>>(in, rows, size, slide, scans, out);
        case 3: return run<Sum<double, double>>(in, rows, size, slide, scans, out);
        case 4: return run<Min<double>>(in, rows, size, slide, scans, out);
        case 5: return run<Avg<double, double>>(in, rows, size, slide, scans, out);
        default: return -1;
    }
}

// Read an array once; the sum keeps the loop alive.
int64_t swag_read(const int64_t *data, int64_t words) {
    int64_t sum = 0;
    for (int64_t i = 0; i < words; i++) sum += data[i];
    return sum;
}

// How many windows of `size` every `slide` lie over ordered times, at most.
int64_t swag_time_windows(const int64_t *ts, int64_t rows, int64_t size, int64_t slide) {
    if (rows == 0) return 0;
    return floor_divide(ts[rows - 1], slide) - floor_divide(ts[0] - size, slide);
}

// Average over time windows that hold rows, by two stacks over panes of one slide, which divides the size.
// Times are in order. Gives the number of windows written.
int64_t swag_time_avg(const int64_t *ts, const double *value, int64_t rows, int64_t size, int64_t slide,
                      int64_t *starts, double *means) {
    const int64_t q = size / slide, windows = swag_time_windows(ts, rows, size, slide);
    if (windows <= 0) return 0;
    int64_t pane = floor_divide(ts[0] - size, slide) + 1;  // also the number of the first window
    int64_t at = 0, written = 0;
    std::vector<Mean> ring(q);  // before the first row, all panes are empty
    Mean front;
    const auto next = [&](int64_t number) {
        Mean made;
        at += take_pane(ts + at, value + at, rows - at, (number + 1) * slide, made);
        return made;
    };
    for (int64_t w = 0; w < windows; w++) {
        const int64_t slot = w % q;
        if (slot == 0) {
            if (w == 0)
                for (int64_t p = 0; p < q; p++) ring[p] = next(pane + p);
            for (int64_t p = q - 1; p > 0; p--) ring[p - 1] = ring[p - 1] + ring[p];
            front = Mean();
        }
        const Mean window = ring[slot] + front;
        if (window.rows) {
            starts[written] = (pane + w) * slide;
            means[written++] = window.sum / double(window.rows);
        }
        ring[slot] = next(pane + w + q);
        front = front + ring[slot];
    }
    return written;
}
}
