// Hand-written loops over regular signals: what a good programmer would write for each application alone.
// Running sums drift over a long stream, which ours may not; they are still the bar for speed.
#include <cmath>
#include <cstdint>

extern "C" {

void tilt_trend(const double* __restrict x, int64_t n, uint8_t* __restrict out) {
    const int64_t shorter = 20, longer = 50;
    double a = 0, b = 0;
    int64_t i = 0;
    for (; i < n && i < longer; i++) {
        a += x[i] - (i >= shorter ? x[i - shorter] : 0);
        b += x[i];
        out[i] = a / (i + 1 < shorter ? i + 1 : shorter) > b / (i + 1);
    }
    for (; i < n; i++) {
        a += x[i] - x[i - shorter];
        b += x[i] - x[i - longer];
        out[i] = a / double(shorter) > b / double(longer);
    }
}

static double total(const double* x, int64_t n) {
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += x[i + l];
    for (; i < n; i++) lane[0] += x[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static double squares(const double* x, int64_t n, double mean) {
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (; i < n; i++) lane[0] += (x[i] - mean) * (x[i] - mean);
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// What memory alone allows: every sample read, and every sample read and another written.
void tilt_read(const double* __restrict x, int64_t n, double* __restrict out) { *out = total(x, n); }

void tilt_copy(const double* __restrict x, int64_t n, double* __restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + 3;
}

// What an application reads and writes, a block of each buffer after the other, and nothing computed of it.
static uint64_t taken(const uint64_t* __restrict x, int64_t from, int64_t to) {
    uint64_t seen = 0;
    for (int64_t i = from; i < to; i++) seen ^= x[i];
    return seen;
}

static void given(uint64_t* __restrict out, int64_t from, int64_t to, uint64_t value) {
    for (int64_t i = from; i < to; i++) out[i] = value + i;
}

void tilt_traffic(const uint64_t* const* in, const int64_t* in_words, int64_t ins, uint64_t* const* out,
                  const int64_t* out_words, int64_t outs, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++) {
        uint64_t seen = 0;
        for (int64_t k = 0; k < ins; k++) seen ^= taken(in[k], in_words[k] * b / blocks, in_words[k] * (b + 1) / blocks);
        for (int64_t k = 0; k < outs; k++) given(out[k], out_words[k] * b / blocks, out_words[k] * (b + 1) / blocks, seen);
    }
}

void tilt_normalise(const double* __restrict x, int64_t n, double* __restrict out) {
    const int64_t size = 10000;
    for (int64_t start = 0; start < n; start += size) {
        const int64_t count = n - start < size ? n - start : size;
        const double mean = total(x + start, count) / count;
        const double scale = 1 / std::sqrt(squares(x + start, count, mean) / count);
        for (int64_t i = 0; i < count; i++) out[start + i] = (x[start + i] - mean) * scale;
    }
}

// From a sample every 4 ticks to one every 5: four new ones on five old ones.
int64_t tilt_resample(const double* __restrict x, int64_t n, double* __restrict out) {
    const double share[4] = {0.0, 0.25, 0.5, 0.75};
    int64_t made = 0, i = 0;
    for (; i + 5 < n; i += 5, made += 4)
        for (int l = 0; l < 4; l++) out[made + l] = x[i + l] + (x[i + l + 1] - x[i + l]) * share[l];
    for (; made * 5 <= (n - 1) * 4; made++) {
        const int64_t before = made * 5 / 4;
        const double part = double(made * 5 % 4) / 4;
        out[made] = part == 0 ? x[before] : x[before] + (x[before + 1] - x[before]) * part;
    }
    return made;
}
}
