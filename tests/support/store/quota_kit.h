/* Writes as users send them, in a namespace with quotas. */
#ifndef HANSE_TESTS_SUPPORT_STORE_QUOTA_KIT_H
#define HANSE_TESTS_SUPPORT_STORE_QUOTA_KIT_H

#include "api/schema/quota.h"
#include "tests/support/store/store_kit.h"

void quota_begin(struct kit *k);
union command user_command(struct kit *k, struct write_op *ops, uint32_t n);
struct result user_ops(struct kit *k, struct write_op *ops, uint32_t n);
void user_op(struct kit *k, struct write_op *op, enum kind_id kind, const char *name, void *body);
struct result user_create(struct kit *k, enum kind_id kind, const char *name, void *body);
struct result user_delete(struct kit *k, enum kind_id kind, const char *name);
/* "KEY=VALUE KEY=VALUE", keys in order. */
struct resource_quota *quota_of(struct kit *k, const char *hard);
void quota_make(struct kit *k, const char *name, const char *hard);
const char *quota_used(struct kit *k, const char *name, const char *key);
struct workload *quota_workload(struct kit *k, int64_t array);
struct result user_workload(struct kit *k, const char *name, int64_t array);

#endif
