/* See model.h for what must hold. Weights are read through the offsets below, so that a checkpoint
 * is one array. */
#include "deploy/examples/three-tier/trainer/model.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "intermediate results must be doubles, or bits would differ");

enum {
    HIDDEN_BIAS = MODEL_HIDDEN * DIGITS_PIXELS,
    OUTPUT_ROWS = HIDDEN_BIAS + MODEL_HIDDEN,
    OUTPUT_BIAS = OUTPUT_ROWS + DIGITS_CLASSES * MODEL_HIDDEN,
    HELD_OUT_EVERY = 5, /* index mod 5 = 4 is held out */
};

static const double learning_rate = 0.1;

struct activation {
    double hidden[MODEL_HIDDEN];
    double share[DIGITS_CLASSES]; /* softmax */
};

uint64_t fnv1a64(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ p[i]) * 0x100000001b3u;
    }
    return hash;
}

/* splitmix64: one word of state, which the checkpoint carries. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 53 bits in [0, 1): exact. */
static double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* e^x for x <= 0: 2^k · e^r with |r| <= ln2 / 2, e^r by its series. */
static double exact_exp(double x)
{
    if (x < -700.0) {
        return 0.0;
    }
    double k = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    double sum = 1.0;
    for (int i = 13; i > 0; i--) {
        sum = 1.0 + sum * r / i;
    }
    return ldexp(sum, (int)k);
}

/* ln x for x > 0: m · 2^k with m near 1, ln m = 2 atanh((m - 1) / (m + 1)). */
static double exact_log(double x)
{
    int k = 0;
    double m = frexp(x, &k);
    if (m < 0.70710678118654752) {
        m *= 2.0;
        k--;
    }
    double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
    for (int i = 23; i > 0; i -= 2) {
        sum = sum * square + 1.0 / i;
    }
    return 2.0 * s * sum + k * 0.69314718055994531;
}

static int digits_parse_line(char *line, uint8_t *pixel, uint8_t *label)
{
    char *at = line;
    for (unsigned i = 0; i <= DIGITS_PIXELS; i++) {
        char *end = NULL;
        unsigned long limit = i < DIGITS_PIXELS ? 16 : DIGITS_CLASSES - 1;
        if (*at < '0' || *at > '9') {
            return -1;
        }
        unsigned long value = strtoul(at, &end, 10);
        if (value > limit) {
            return -1;
        }
        if (i < DIGITS_PIXELS) {
            if (*end != ',') {
                return -1;
            }
            pixel[i] = (uint8_t)value;
            at = end + 1;
        } else {
            *label = (uint8_t)value;
            at = end;
        }
    }
    return *at == '\n' || *at == '\r' || *at == '\0' ? 0 : -1;
}

int digits_read(const char *path, struct digits *ret_digits, char *why, size_t why_size)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        (void)snprintf(why, why_size, "%s: %m; name the digits with --data FILE", path);
        return -1;
    }
    char line[512];
    struct digits *d = ret_digits;
    d->count = 0;
    d->digest = FNV1A64_START;
    int result = 0;
    while (result == 0 && fgets(line, sizeof line, file)) {
        if (d->count == DIGITS_MAX ||
            digits_parse_line(line, d->pixel[d->count], &d->label[d->count]) < 0) {
            (void)snprintf(why, why_size,
                           "%s:%u: expected at most %d lines of 64 pixels (0..16) and a digit",
                           path, d->count + 1, DIGITS_MAX);
            result = -1;
            break;
        }
        d->digest = fnv1a64(d->digest, d->pixel[d->count], DIGITS_PIXELS);
        d->digest = fnv1a64(d->digest, &d->label[d->count], 1);
        d->count++;
    }
    if (result == 0 && (ferror(file) || d->count < HELD_OUT_EVERY)) {
        (void)snprintf(why, why_size, "%s: could not be read, or holds no digits", path);
        result = -1;
    }
    (void)fclose(file);
    return result;
}

void model_init(struct model *model, uint64_t seed, uint32_t rank, uint32_t world)
{
    *model = (struct model){.seed = seed, .rank = rank, .world = world};
    /* All ranks start from the same weights; what differs is the order of their samples. */
    uint64_t random = seed;
    double hidden_span = sqrt(6.0 / (DIGITS_PIXELS + MODEL_HIDDEN));
    double output_span = sqrt(6.0 / (MODEL_HIDDEN + DIGITS_CLASSES));
    for (unsigned i = 0; i < HIDDEN_BIAS; i++) {
        model->weight[i] = (2.0 * random_unit(&random) - 1.0) * hidden_span;
    }
    for (unsigned i = OUTPUT_ROWS; i < OUTPUT_BIAS; i++) {
        model->weight[i] = (2.0 * random_unit(&random) - 1.0) * output_span;
    }
    model->random = random + rank;
}

static void model_forward(const struct model *model, const uint8_t *pixel, struct activation *a)
{
    for (unsigned h = 0; h < MODEL_HIDDEN; h++) {
        const double *row = &model->weight[h * DIGITS_PIXELS];
        double sum = model->weight[HIDDEN_BIAS + h];
        for (unsigned p = 0; p < DIGITS_PIXELS; p++) {
            sum += row[p] * (pixel[p] * 0.0625);
        }
        a->hidden[h] = sum > 0.0 ? sum : 0.0;
    }
    double top = -DBL_MAX, total = 0.0;
    for (unsigned c = 0; c < DIGITS_CLASSES; c++) {
        const double *row = &model->weight[OUTPUT_ROWS + c * MODEL_HIDDEN];
        double sum = model->weight[OUTPUT_BIAS + c];
        for (unsigned h = 0; h < MODEL_HIDDEN; h++) {
            sum += row[h] * a->hidden[h];
        }
        a->share[c] = sum;
        top = sum > top ? sum : top;
    }
    for (unsigned c = 0; c < DIGITS_CLASSES; c++) {
        a->share[c] = exact_exp(a->share[c] - top);
        total += a->share[c];
    }
    for (unsigned c = 0; c < DIGITS_CLASSES; c++) {
        a->share[c] /= total;
    }
}

static void model_backward(const struct model *model, const uint8_t *pixel, uint8_t label,
                           const struct activation *a, double *slope)
{
    double back[MODEL_HIDDEN] = {0};
    for (unsigned c = 0; c < DIGITS_CLASSES; c++) {
        double error = a->share[c] - (c == label ? 1.0 : 0.0);
        unsigned row = OUTPUT_ROWS + c * MODEL_HIDDEN;
        for (unsigned h = 0; h < MODEL_HIDDEN; h++) {
            slope[row + h] += error * a->hidden[h];
            back[h] += error * model->weight[row + h];
        }
        slope[OUTPUT_BIAS + c] += error;
    }
    for (unsigned h = 0; h < MODEL_HIDDEN; h++) {
        if (a->hidden[h] <= 0.0) {
            continue;
        }
        for (unsigned p = 0; p < DIGITS_PIXELS; p++) {
            slope[h * DIGITS_PIXELS + p] += back[h] * (pixel[p] * 0.0625);
        }
        slope[HIDDEN_BIAS + h] += back[h];
    }
}

/* The n-th sample that may be learnt from (held_out = 0), or that may not (1). */
static unsigned sample_index(uint64_t n, int held_out)
{
    const unsigned learnt = HELD_OUT_EVERY - 1;
    return (unsigned)(held_out ? n * HELD_OUT_EVERY + learnt
                               : n / learnt * HELD_OUT_EVERY + n % learnt);
}

void model_train_step(struct model *model, const struct digits *digits)
{
    double slope[MODEL_WEIGHTS] = {0};
    unsigned groups = digits->count / HELD_OUT_EVERY;
    uint64_t learnt = (uint64_t)groups * (HELD_OUT_EVERY - 1);
    uint64_t shard = learnt / model->world;
    for (unsigned i = 0; i < MODEL_BATCH; i++) {
        uint64_t n = random_next(&model->random) % shard * model->world + model->rank;
        unsigned at = sample_index(n, 0);
        struct activation a;
        model_forward(model, digits->pixel[at], &a);
        model_backward(model, digits->pixel[at], digits->label[at], &a, slope);
    }
    for (unsigned i = 0; i < MODEL_WEIGHTS; i++) {
        model->weight[i] -= learning_rate / MODEL_BATCH * slope[i];
    }
    model->step++;
}

static unsigned activation_best(const struct activation *a)
{
    unsigned best = 0;
    for (unsigned c = 1; c < DIGITS_CLASSES; c++) {
        best = a->share[c] > a->share[best] ? c : best;
    }
    return best;
}

unsigned model_classify(const struct model *model, const struct digits *digits, uint64_t sample)
{
    struct activation a;
    unsigned at = sample_index(sample % (digits->count / HELD_OUT_EVERY), 1);
    model_forward(model, digits->pixel[at], &a);
    return activation_best(&a);
}

struct score model_score(const struct model *model, const struct digits *digits)
{
    unsigned held_out = digits->count / HELD_OUT_EVERY, right = 0;
    double loss = 0.0;
    for (unsigned i = 0; i < held_out; i++) {
        unsigned at = sample_index(i, 1);
        struct activation a;
        model_forward(model, digits->pixel[at], &a);
        right += activation_best(&a) == digits->label[at];
        double share = a.share[digits->label[at]];
        loss -= exact_log(share > DBL_MIN ? share : DBL_MIN);
    }
    return (struct score){.loss = loss / held_out, .accuracy = (double)right / held_out};
}

uint64_t model_digest(const struct model *model)
{
    uint64_t hash = FNV1A64_START;
    for (unsigned i = 0; i < MODEL_WEIGHTS; i++) {
        uint64_t bits;
        memcpy(&bits, &model->weight[i], sizeof bits);
        uint8_t byte[8];
        for (unsigned b = 0; b < 8; b++) {
            byte[b] = (uint8_t)(bits >> (8 * b));
        }
        hash = fnv1a64(hash, byte, sizeof byte);
    }
    return hash;
}
