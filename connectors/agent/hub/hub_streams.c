/* Logs, exec and forwarded ports of agents (connectors/streams): what each version of them knows.
 * An agent that is older than what is asked for must not do something else instead. */
#include "connectors/agent/hub/hub_internal.h"

static int known(const struct hub *h, bool asked, bool knows, const char *what, struct err *err)
{
    if (!h->hello)
        return err_set(err, E_UNAVAIL, "agent %s is not connected", h->base.target);
    if (asked && !knows)
        return err_set(err, E_NOTIMPL, "the agent of target %s is of a version without %s",
                       h->base.target, what);
    return 0;
}

int hub_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct hub *h = hub_of(c);
    bool times = rq->timestamps || rq->since_span_ms || rq->since_ms;
    int rc = known(h, times, h->hello && h->session->times, "times of what programs print", err);

    return rc ? rc : asked_logs(&h->streams, ++h->next_id, k, rq, sink, ret, err);
}

int hub_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct hub *h = hub_of(c);
    int rc = known(h, rq->tty, h->hello && h->session->terminals, "terminals for exec", err);

    return rc ? rc : asked_exec(&h->streams, ++h->next_id, k, rq, sink, ret, err);
}

int hub_forward(struct connector *c, const struct run_key *k, const struct forward_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct hub *h = hub_of(c);
    int rc = known(h, true, h->hello && h->session->forwards, "forwarded ports", err);

    return rc ? rc : asked_forward(&h->streams, ++h->next_id, k, rq, sink, ret, err);
}
