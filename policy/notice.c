/* Notices as sentences say them. */
#include "policy/policy.h"

#include <stdio.h>

void policy_notice_print(const char *node, const struct node_notice *n, char *out, size_t size)
{
    char at[32];

    time_print(n->deadline, at);
    (void)snprintf(out, size, "node %.80s was announced to go away (%s%s%s)", node,
                   notice_kind_text(n->kind), n->deadline ? ", at " : "", n->deadline ? at : "");
}
