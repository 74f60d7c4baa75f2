/* Machines: the second interface of a driver. A run is work; a machine is a place for work, which
 * costs money from when it is ordered until it is ended, whether anything runs there or not.
 * Several runs share a machine, and it outlives them. Its GPUs come to the pool as nodes of the
 * inventory that name it (node_spec.machine); no run is ever started through this interface.
 *
 * The contract, beside that of connector.h:
 *
 *   - The caller orders nothing before the order is in the log. An order is known by its key, and
 *     the same key with the same order gives one machine, however often and late it is sent, also
 *     when every answer was lost. The same key with another order is refused (REFUSED_CONFLICT),
 *     and gives nothing.
 *   - All calls are asynchronous and end by their deadline: OUT_DONE, OUT_REJECTED (provably no
 *     effect; call.refused says what is blamed), OUT_UNKNOWN. `seen` of the callback is NULL. After
 *     OUT_UNKNOWN of an order the caller lists, and only then orders again, under the same key.
 *   - What is known of machines is told by events->machine, ahead of done(). The driver writes the
 *     key and the cluster on what it makes, and tells of nothing that does not carry its mark.
 *   - Every machine ends by itself when its time to live is over and nobody has renewed it, also
 *     when this hub never comes back. That is the most that a dead hub costs. A driver that cannot
 *     have this kept offers no machines.
 *   - "Not listed" is no proof while a listing may lag behind (lag_ms), and none at all when the
 *     listing did not come to its end. Only MACHINE_ENDED, or a complete listing without it that
 *     began later than that after the last order under its key, says that a machine is gone.
 *   - What cannot be read of a machine is told by events->machine_unread, and ends the call that
 *     asked OUT_UNKNOWN; it spoils nothing that is told of others.
 *   - A key that was released never gives a machine any more, also when it had given none yet.
 *   - A machine that has this cluster's mark and is in no log is told of, and left alone.
 *
 * A machine is ordered in the target's own name, not in a principal's: runs of several share it.
 *
 * Enrolment is not here yet: an order brings no token by which a machine could join as an agent,
 * since nothing takes one. Until then a driver offers only machines whose nodes its own inventory
 * tells. */
#ifndef HANSE_CONNECTORS_MACHINES_H
#define HANSE_CONNECTORS_MACHINES_H

#include "connectors/wire/wire.h"

#include <stddef.h>
#include <stdint.h>

struct call;
struct connector;

/* wire.def defines machine_order, machine_seen and machine_price, because they go over the wire.
 *
 * MACHINE_ASKED: accepted, and nothing is there yet. MACHINE_BOOTING: it is there and no node of it
 * is. MACHINE_JOINED: its nodes are. MACHINE_NOTICED: it will go away; which of its nodes do, and
 * when, connector_events.notices tells. MACHINE_ENDED: nothing of it is left, and it costs nothing
 * after billed_to_ms. Times are by the target's clock. */

#define MACHINE_KEY_MAX 64       /* letters, digits and -, and the zero at its end */
#define MACHINES_RENEWED_MAX 100 /* by one call */
/* What was told of less than this before a listing began may be missing in it: a server's own list
 * may come behind its answers. */
#define MACHINE_LISTED_WITHIN_MS 30000
#define MACHINE_PRICES_MAX 1024

struct machine_ops {
    /* What was ordered less than this before a listing began may be missing in it. */
    uint64_t lag_ms;
    /* Asks for one machine. A driver may send orders that differ in nothing but their keys, and
     * are asked for in one turn of the loop, as one request, if each machine keeps its own key. */
    void (*order)(struct connector *c, const struct machine_order *o, struct call *call);
    /* Tells of all machines with Hanse's mark, the ended ones too while the target remembers them.
     * DONE: those were all. */
    void (*list)(struct connector *c, struct call *call);
    /* Those that live shall live for ttl_ms from the call on, at least; n is at most
     * MACHINES_RENEWED_MAX. DONE: they do, or they have ended; events->machine tells which. */
    void (*renew)(struct connector *c, const char *const *keys, size_t n, uint64_t ttl_ms,
                  struct call *call);
    /* Ends the machine for good. `o` is its order as it was: a driver that must find out first
     * whether it was ever given may have to send it again. DONE: it is ended, or ends without any
     * further call, and its key is refused from now on; events->machine tells its end. */
    void (*release)(struct connector *c, const struct machine_order *o, struct call *call);
    /* Asks what machines cost; events->prices tells all of it ahead of DONE. */
    void (*prices)(struct connector *c, struct call *call);
};

#endif
