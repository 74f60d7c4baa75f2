/* One command of every type, every field of it set, and what must be read from its bytes. A new
 * command gets its pair of functions and its row; a new field is set and checked in both. For
 * test_contract_commands.c only. */
#ifndef HANSE_TESTS_SUPPORT_STORE_GOLDEN_COMMANDS_H
#define HANSE_TESTS_SUPPORT_STORE_GOLDEN_COMMANDS_H

#include "tests/support/store/store_kit.h"

#define TIME_MS 1795234567890 /* 2026-11-21 */
#define GOLDEN_COMMANDS 26

struct golden_command {
    const char *name;
    enum command_type type;
    void (*make)(union command *c, struct arena *a);
    void (*check)(const union command *c);
};
void facts_make(union command *c, struct arena *a);
void facts_check(const union command *c);
/* golden_facts.c */
void facts_agent_make(union command *c, struct arena *a);
void facts_agent_check(const union command *c);
void facts_denies_make(union command *c, struct arena *a);
void facts_denies_check(const union command *c);
void facts_part_make(union command *c, struct arena *a);
void facts_part_check(const union command *c);
void facts_refused_make(union command *c, struct arena *a);
void facts_refused_check(const union command *c);
void facts_unread_make(union command *c, struct arena *a);
void facts_unread_check(const union command *c);
void run_make(union command *c, struct arena *a);
void run_use_make(union command *c, struct arena *a);
void run_use_check(const union command *c);
/* golden_counted.c */
void facts_counted_make(union command *c, struct arena *a);
void facts_counted_check(const union command *c);
void facts_slices_make(union command *c, struct arena *a);
void facts_slices_check(const union command *c);
void place_slices_make(union command *c, struct arena *a);
void place_slices_check(const union command *c);
void place_counted_make(union command *c, struct arena *a);
void place_counted_check(const union command *c);
extern const struct golden_command golden_commands[GOLDEN_COMMANDS];

#endif
