/* The list. Each rank is alone with its devices (CUDA_VISIBLE_DEVICES), so to whoever counts by
 * machines it is the one process of a machine of its own.
 *
 * A name must not be in it that a library takes for the word of a launcher which it then asks for
 * more: PMI_RANK and PMI_SIZE (MPICH's process manager), PMIX_… (Open MPI's), TORCHELASTIC_RUN_ID
 * (torchrun's agent), SLURM_…. What OMPI_COMM_WORLD_… say programs read by themselves. */
#include "connectors/ranks/ranks.h"

#include <inttypes.h>
#include <string.h>

size_t ranks_names(const struct ranks_place *p, struct arena *a, const struct ranks_name **ret)
{
    const char *rank = arena_printf(a, "%" PRId64, p->rank);
    const char *world = arena_printf(a, "%" PRId64, p->world);
    const char *at = strchr(p->host, ':') ? "[%s]:%s" : "%s:%s"; /* one of IPv6 */
    const struct ranks_name all[] = {
        {RANKS_HOST, p->host},
        {RANKS_PORT, p->port},
        /* torch.distributed, DeepSpeed, Accelerate, Lightning; and what torchrun's workers see */
        {"RANK", rank},
        {"WORLD_SIZE", world},
        {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"NODE_RANK", rank},
        {"GROUP_RANK", rank},
        {"GROUP_WORLD_SIZE", world},
        {"ROLE_RANK", rank},
        {"ROLE_WORLD_SIZE", world},
        /* torchrun's own arguments */
        {"PET_NNODES", world},
        {"PET_NODE_RANK", rank},
        {"PET_MASTER_ADDR", p->host},
        {"PET_MASTER_PORT", p->port},
        {"JAX_COORDINATOR_ADDRESS", arena_printf(a, at, p->host, p->port)},
        {"JAX_NUM_PROCESSES", world},
        {"JAX_PROCESS_ID", rank},
        /* programs for mpirun that ask the environment and no MPI */
        {"OMPI_COMM_WORLD_RANK", rank},
        {"OMPI_COMM_WORLD_SIZE", world},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
        {"OMPI_COMM_WORLD_NODE_RANK", "0"},
    };

    *ret = arena_memdup(a, all, sizeof all);
    return sizeof all / sizeof *all;
}
