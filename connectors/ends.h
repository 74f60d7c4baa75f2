/* The reasons for which runs end, from connectors/ends.def. Code that decides by the reason of an
 * end reads its row; nothing compares the text. */
#ifndef HANSE_CONNECTORS_ENDS_H
#define HANSE_CONNECTORS_ENDS_H

#include <stdbool.h>
#include <stdint.h>

/* The exit status by which a program says: I have saved, start me again (EX_TEMPFAIL of
 * sysexits.h). */
#define RUN_EXIT_SAVED 75

struct run_end;

enum end {
    END_OTHER = 0, /* no reason, or one that this version does not know */
#define E(name, text, began, fault, again, checkpoint) END_##name,
#include "connectors/ends.def"
#undef E
    END_NR
};
enum end_began { END_RAN, END_NEVER };
enum end_fault { FAULT_NONE, FAULT_WORKLOAD, FAULT_TARGET, FAULT_HANSE };
enum end_again { AGAIN_COUNTED, AGAIN_FREE, AGAIN_STEP, AGAIN_HELD };
enum end_checkpoint {
    CHECKPOINT_KEPT,
    CHECKPOINT_REFUSED,
    CHECKPOINT_MISFIT,
    CHECKPOINT_UNREACHED,
    CHECKPOINT_UNSEALED,
    CHECKPOINT_UNSTORED
};
struct end_row {
    const char *text; /* "RunnerKilled"; of END_OTHER: "" */
    enum end_began began;
    enum end_fault fault;
    enum end_again again;
    enum end_checkpoint checkpoint;
};

const char *end_text(enum end e) __attribute__((returns_nonnull));
/* Returns the row of a reason that a connector reported. An unknown one has the row of END_OTHER:
 * the workload's own failure, which counts as a retry and says nothing of a checkpoint. */
const struct end_row *end_row(const char *reason) __attribute__((returns_nonnull));
/* True when the reason says that the target failed the run, not its program */
bool reason_of_target(const char *reason);
/* Is it one that a runner may give for its end? Why we ourselves ended it is not for it to say. */
bool end_is_a_runners(const char *reason);
/* True when a program has saved and wants to be started again: it said so by RUN_EXIT_SAVED, or,
 * where a launcher ended in its place, its runner saw it (END_SAVED). */
bool end_says_saved(int64_t exit_code, int64_t term_signal, const char *reason);
/* likewise, or when the proof does: a lease that ran out, an operator's fence */
bool end_by_target(const struct run_end *e);

#endif
