/* Which driver a type of Target has. What each of them can do stands in api/schema/targets.def as
 * well, for those who decide; here both are held against each other. */
#include "connectors/drivers/drivers.h"

#include "connectors/agent/agent.h"
#include "connectors/callout/callout.h"
#include "connectors/kubernetes/kubernetes.h"

const struct connector_ops *connector_driver(enum target_type type)
{
    static const struct connector_ops *const drivers[] = {
        [TARGET_AGENT] = &connector_agent_ops,
        [TARGET_CALLOUT] = &connector_callout_ops,
        [TARGET_KUBERNETES] = &connector_kubernetes_ops};
    const struct connector_ops *ops =
        (unsigned)type < sizeof drivers / sizeof *drivers ? drivers[type] : NULL;

    INV((ops != NULL) == target_can(type, CAN_BE_DRIVEN));
    INV(!ops || ((ops->renew != NULL) == target_can(type, CAN_LEASE | CAN_CALL_HOME) &&
                 (ops->runner != NULL) == target_can(type, CAN_CALL_HOME) &&
                 (ops->exec != NULL) == target_can(type, CAN_EXEC | CAN_CALL_HOME) &&
                 (ops->forward != NULL) == (ops->exec != NULL) &&
                 ops->acts_for == target_can(type, CAN_ACT_FOR) &&
                 (ops->machines != NULL) == target_can(type, CAN_ORDER_MACHINES) &&
                 (ops->stage != NULL) == target_can(type, CAN_SAVE | CAN_CALL_HOME) &&
                 (ops->checkpoint != NULL) == target_can(type, CAN_ASK | CAN_CALL_HOME)));
    return ops;
}
