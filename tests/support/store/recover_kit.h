/* Steps of a recovery, as the leader proposes them, for its tests. */
#ifndef HANSE_TESTS_SUPPORT_STORE_RECOVER_KIT_H
#define HANSE_TESTS_SUPPORT_STORE_RECOVER_KIT_H

#include "api/base/failpoint.h"
#include "tests/support/store/store_kit.h"

#define UID "0123456789abcdef0123456789abcdef"

union command kit_recover_step(enum recover_step s);
struct result kit_recover_begin(struct kit *k, const char *uid, uint64_t rv);
struct result kit_lost(struct kit *k, const char *name);
struct result kit_settle(struct kit *k, const char *target);
struct result kit_adopt(struct kit *k, const struct object *doc, int64_t epoch, int64_t try_,
                        bool ended, int64_t exit_code);
/* What another state had: the documents as their runs carry them. */
const struct object *kit_carried(struct kit *from, const char *name, int64_t device);

#endif
