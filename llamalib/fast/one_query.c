/* Attention of one query a head over many positions, in bfloat16.

   softmax(q kT / sqrt(hd)) v, with the G queries of a group together: every
   key and every value is read once. native.py compiles this for one G and
   one hd, which lets a compiler keep a head's sums in registers.

   The positions of a head are shared out in runs. A run's weights are
   relative to its own highest score, and its parts are put together by who
   calls: Dao et al. 2023, "Flash-Decoding for long-context inference". */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 128 /* positions whose weights are held at once */
#define LINE 32   /* numbers of 2 bytes that come from memory together */

typedef uint16_t bfloat16;

/* A bfloat16 is the upper half of a float. */
static inline float widened(bfloat16 upper) {
    uint32_t bits = (uint32_t)upper << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Start to read what the next loop will need: a processor that guesses it
   by itself stops at the end of each page of 4096 bytes. */
static inline void soon(const bfloat16 *row) {
    for (int d = 0; d < HD; d += LINE) __builtin_prefetch(row + d, 0, 2);
}

/* p (G, BLOCK): scores of n keys. */
static inline void scores(float p[G][BLOCK], const float q[G][HD],
                          const bfloat16 *k, const bfloat16 *v, int64_t n) {
    for (int64_t s = 0; s < n; s++, k += HD, v += HD) {
        soon(v);
        for (int g = 0; g < G; g++) {
            float sum = 0;
            for (int d = 0; d < HD; d++) sum += q[g][d] * widened(k[d]);
            p[g][s] = sum;
        }
    }
}

/* Scores to weights, all of them relative to the highest so far: what was
   added up before is made less where a higher one has come. */
static inline void weigh(float p[BLOCK], int64_t n, float *high, float *total,
                         float out[HD]) {
    float now = *high, sum = 0;
    for (int64_t s = 0; s < n; s++) now = p[s] > now ? p[s] : now;
    float less = expf(*high - now);
    for (int64_t s = 0; s < n; s++) {
        p[s] = expf(p[s] - now);
        sum += p[s];
    }
    *high = now;
    *total = *total * less + sum;
    for (int d = 0; d < HD; d++) out[d] *= less;
}

/* out (G, HD): n values more, by their weights. */
static inline void add_values(float out[G][HD], float p[G][BLOCK],
                              const bfloat16 *k, const bfloat16 *v, int64_t n) {
    float sum[G][HD]; /* of their own, or each row would go to memory */
    memcpy(sum, out, sizeof sum);
    for (int64_t s = 0; s < n; s++, k += HD, v += HD) {
        soon(k + BLOCK * HD);
        for (int g = 0; g < G; g++)
            for (int d = 0; d < HD; d++) sum[g][d] += p[g][s] * widened(v[d]);
    }
    memcpy(out, sum, sizeof sum);
}

/* q (heads, G, HD), already divided by sqrt(hd); k and v (heads, S, HD),
   `stride` numbers from one head to the next. Written: out (heads, runs, G,
   HD), sums of values by weight; total, high (heads, runs, G), the sum of a
   run's weights and the score that they are relative to. */
__attribute__((visibility("default"))) void
one_query(const float *q, const bfloat16 *k, const bfloat16 *v, int64_t heads,
          int64_t S, int64_t stride, int64_t runs, float *out, float *total,
          float *high, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < heads * runs; i++) {
        int64_t head = i / runs, r = i % runs;
        int64_t start = S * r / runs, end = S * (r + 1) / runs;
        const bfloat16 *kh = k + head * stride, *vh = v + head * stride;
        float p[G][BLOCK], sum[G][HD] = {0}, all[G] = {0}, most[G];
        for (int g = 0; g < G; g++) most[g] = -FLT_MAX;
        for (int64_t s = start; s < end; s += BLOCK) {
            int64_t n = end - s < BLOCK ? end - s : BLOCK;
            const bfloat16 *ks = kh + s * HD, *vs = vh + s * HD;
            scores(p, (const float(*)[HD])(q + head * G * HD), ks, vs, n);
            for (int g = 0; g < G; g++)
                weigh(p[g], n, most + g, all + g, sum[g]);
            add_values(sum, p, ks, vs, n);
        }
        memcpy(out + i * G * HD, sum, sizeof sum);
        memcpy(total + i * G, all, sizeof all);
        memcpy(high + i * G, most, sizeof most);
    }
}
