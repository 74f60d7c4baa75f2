/* The learner: a 64-32-10 perceptron on 8 × 8 digits, trained by mini-batch descent. It exists so
 * that Hanse's main job moves something real. It must never give other bits on another machine, at
 * another time or after a resume: only + - * / and exact functions of libm (floor, frexp, ldexp,
 * sqrt) are used, because exp and log of libm differ between processors. */
#ifndef THREE_TIER_MODEL_H
#define THREE_TIER_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum {
    DIGITS_PIXELS = 64,
    DIGITS_CLASSES = 10,
    DIGITS_MAX = 2048,
    MODEL_HIDDEN = 32,
    MODEL_BATCH = 16,
    MODEL_WEIGHTS = MODEL_HIDDEN * DIGITS_PIXELS + MODEL_HIDDEN + DIGITS_CLASSES * MODEL_HIDDEN +
                    DIGITS_CLASSES,
};

struct digits {
    unsigned count;
    uint64_t digest; /* FNV-1a 64 over pixels and labels: a resume on other data is refused */
    uint8_t pixel[DIGITS_MAX][DIGITS_PIXELS];
    uint8_t label[DIGITS_MAX];
};

/* All that a run is: whoever holds these values goes on to the same result. */
struct model {
    uint64_t seed, step, random;
    uint32_t rank, world;
    double weight[MODEL_WEIGHTS]; /* hidden rows, hidden biases, output rows, output biases */
};

struct score {
    double loss, accuracy;
};

/* Reads the CSV; 0, or -1 with a sentence in `why`. */
int digits_read(const char *path, struct digits *ret_digits, char *why, size_t why_size);

void model_init(struct model *model, uint64_t seed, uint32_t rank, uint32_t world);

/* One mini-batch from the shard rank of world; adds one to step. */
void model_train_step(struct model *model, const struct digits *digits);

/* The digit that the model sees in one held-out sample; sample counts on without end. */
unsigned model_classify(const struct model *model, const struct digits *digits, uint64_t sample);

/* Over the held-out samples, which no rank learns from. */
struct score model_score(const struct model *model, const struct digits *digits);

uint64_t fnv1a64(uint64_t hash, const void *bytes, size_t size);
#define FNV1A64_START 0xcbf29ce484222325u

/* FNV-1a 64 over the weights as little-endian bytes. */
uint64_t model_digest(const struct model *model);

#endif
