/* How often to checkpoint: Young 1974, in the higher order that Daly 2006 gives. Too often wastes
 * time on writing, too seldom wastes work when something fails. Takes milliseconds and gives
 * milliseconds of work between two writes. */
#include "policy/policy.h"

#include <math.h>

int64_t policy_checkpoint_interval(int64_t write_ms, int64_t mtbf_ms)
{
    double write = (double)write_ms, mtbf = (double)mtbf_ms, part;

    if (write_ms <= 0 || mtbf_ms <= 0)
        return 0;
    /* Failures come as fast as a checkpoint is written: nothing is better than the mean itself. */
    if (write >= 2 * mtbf)
        return mtbf_ms;
    part = write / (2 * mtbf);
    return (int64_t)(sqrt(2 * write * mtbf) * (1 + sqrt(part) / 3 + part / 9) - write + 0.5);
}
