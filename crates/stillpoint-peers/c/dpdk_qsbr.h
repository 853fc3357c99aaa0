/*
 * A quiescent state variable, and its single operations. dpdk.c and dpdk_drop_in.c include this file after DPDK's rte_rcu_qsbr.h or
 * ours, and after they define NAME, which makes the names of the functions.
 */
#include "peer.h"

/* Allocates whole cache lines. Returns NULL if there is no memory. */
static void *aligned_memory(size_t size)
{
    return aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(size, RTE_CACHE_LINE_SIZE));
}

/* Makes a quiescent state variable for `max_readers` threads. Returns NULL if there is no memory. */
struct rte_rcu_qsbr *NAME(new)(uint32_t max_readers)
{
    struct rte_rcu_qsbr *qsbr = aligned_memory(rte_rcu_qsbr_get_memsize(max_readers));

    if (qsbr != NULL && rte_rcu_qsbr_init(qsbr, max_readers) != 0) {
        free(qsbr);
        qsbr = NULL;
    }
    return qsbr;
}

void NAME(free)(struct rte_rcu_qsbr *qsbr)
{
    free(qsbr);
}

/* Registers the calling thread as reader `id`, offline. Returns false if there is no such id. */
bool NAME(join)(struct rte_rcu_qsbr *qsbr, uint32_t id)
{
    return rte_rcu_qsbr_thread_register(qsbr, id) == 0;
}

void NAME(leave)(struct rte_rcu_qsbr *qsbr, uint32_t id)
{
    (void)rte_rcu_qsbr_thread_unregister(qsbr, id);
}

/* A variable of one reader. */
static struct rte_rcu_qsbr *new_for_one(void)
{
    struct rte_rcu_qsbr *qsbr = NAME(new)(1);

    if (qsbr == NULL) {
        fputs("out of memory: no room for a quiescent state variable\n", stderr);
        abort();
    }
    return qsbr;
}

/* Runs OPERATION with `qsbr`, in which the calling thread is reader 0, online. */
#define MICRO(iterations, BEFORE, OPERATION, AFTER)                                            \
    do {                                                                                   \
        struct rte_rcu_qsbr *qsbr = new_for_one();                                         \
        (void)NAME(join)(qsbr, 0);                                               \
        rte_rcu_qsbr_thread_online(qsbr, 0);                                               \
        BEFORE;                                                                            \
        REPEAT(iterations, OPERATION);                                                     \
        AFTER;                                                                             \
        rte_rcu_qsbr_thread_offline(qsbr, 0);                                              \
        NAME(leave)(qsbr, 0);                                                    \
        NAME(free)(qsbr);                                                        \
    } while (0)

void NAME(micro_quiescent)(uint64_t iterations)
{
    MICRO(iterations, (void)0, rte_rcu_qsbr_quiescent(qsbr, 0), (void)0);
}

void NAME(micro_start)(uint64_t iterations)
{
    MICRO(iterations, (void)0, (void)rte_rcu_qsbr_start(qsbr), (void)0);
}

/* The first check completes the grace period, and the variable records that for the others. */
void NAME(micro_check)(uint64_t iterations)
{
    volatile int done;
    uint64_t token;

    MICRO(iterations, {
        token = rte_rcu_qsbr_start(qsbr);
        rte_rcu_qsbr_quiescent(qsbr, 0);
        done = rte_rcu_qsbr_check(qsbr, token, false);
    }, done = rte_rcu_qsbr_check(qsbr, token, false), (void)0);
    (void)done;
}
