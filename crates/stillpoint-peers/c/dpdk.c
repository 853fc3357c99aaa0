/*
 * DPDK's rte_rcu_qsbr, and the rte_ring between a writer and its background thread. Both use memory of the C library. Only the micro
 * benchmark's defer queue needs the environment abstraction layer to be initialised.
 */
#define _GNU_SOURCE
/* For the defer queue. */
#define ALLOW_EXPERIMENTAL_API
#include <pthread.h>
#include <sched.h>

#include <rte_config.h>

#include <rte_rcu_qsbr.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "peer.h"

#define NAME(function) stillpoint_dpdk_##function
#include "dpdk_qsbr.h"

struct read_outcome stillpoint_dpdk_read(struct rte_rcu_qsbr *qsbr, uint32_t id, const struct read_job *job)
{
    struct read_outcome outcome;

    rte_rcu_qsbr_thread_online(qsbr, id);
    READ_SLOTS(job, &outcome, rte_rcu_qsbr_lock(qsbr, id), {
        rte_rcu_qsbr_unlock(qsbr, id);
        rte_rcu_qsbr_quiescent(qsbr, id);
    }, rte_rcu_qsbr_thread_offline(qsbr, id), rte_rcu_qsbr_thread_online(qsbr, id));
    rte_rcu_qsbr_thread_offline(qsbr, id);
    return outcome;
}

uint64_t stillpoint_dpdk_start(struct rte_rcu_qsbr *qsbr)
{
    return rte_rcu_qsbr_start(qsbr);
}

bool stillpoint_dpdk_check(struct rte_rcu_qsbr *qsbr, uint64_t token)
{
    return rte_rcu_qsbr_check(qsbr, token, false) == 1;
}

/* `Pending` in src/native/dpdk/raw.rs: an unlinked element and the token of its grace period. */
struct pending {
    struct element *element;
    uint64_t token;
};

/* Makes a ring for one producer, one consumer and `count` - 1 entries. `count` is a power of two. Returns NULL if there is no memory. */
struct rte_ring *stillpoint_dpdk_ring_new(uint32_t count)
{
    struct rte_ring *ring;
    ssize_t size = rte_ring_get_memsize_elem(sizeof(struct pending), count);

    if (size < 0)
        return NULL;
    ring = aligned_memory((size_t)size);
    if (ring != NULL && rte_ring_init(ring, "stillpoint", count, RING_F_SP_ENQ | RING_F_SC_DEQ) != 0) {
        free(ring);
        ring = NULL;
    }
    return ring;
}

void stillpoint_dpdk_ring_free(struct rte_ring *ring)
{
    free(ring);
}

/* Returns false if the ring is full. */
bool stillpoint_dpdk_ring_push(struct rte_ring *ring, const struct pending *pending)
{
    return rte_ring_sp_enqueue_elem(ring, (void *)pending, sizeof *pending) == 0;
}

/* Returns false if the ring is empty. */
bool stillpoint_dpdk_ring_pop(struct rte_ring *ring, struct pending *pending)
{
    return rte_ring_sc_dequeue_elem(ring, pending, sizeof *pending) == 0;
}

/* The CPU on which the calling thread runs. */
int stillpoint_dpdk_cpu(void)
{
    return sched_getcpu();
}

static void release_objects(void *unused, void *objects, unsigned int count)
{
    (void)unused;
    for (unsigned int i = 0; i < count; i++)
        free(((void **)objects)[i]);
}

/* Makes a defer queue with room for a few batches. It frees only when it is asked to. */
static struct rte_rcu_qsbr_dq *new_queue(struct rte_rcu_qsbr *qsbr)
{
    const struct rte_rcu_qsbr_dq_parameters parameters = {
        .name = "stillpoint_micro",
        .flags = RTE_RCU_QSBR_DQ_MT_UNSAFE,
        .size = 16 * RETIRED_TOGETHER,
        .esize = sizeof(void *),
        .trigger_reclaim_limit = 16 * RETIRED_TOGETHER + 1,
        .max_reclaim_size = RETIRED_TOGETHER,
        .free_fn = release_objects,
        .v = qsbr,
    };
    struct rte_rcu_qsbr_dq *queue = rte_rcu_qsbr_dq_create(&parameters);

    if (queue == NULL) {
        fputs("out of memory: no room for a defer queue of DPDK\n", stderr);
        abort();
    }
    return queue;
}

/* Replaces the object and retires the old one. After a batch it reports a quiescent state, and frees what earlier batches retired. */
static void retire_object(struct rte_rcu_qsbr *qsbr, struct rte_rcu_qsbr_dq *queue, _Atomic(void *) *shared,
                          uint64_t number)
{
    void *old = exchange_object(shared, new_object(number));

    if (old != NULL && rte_rcu_qsbr_dq_enqueue(queue, &old) != 0)
        abort();
    if ((number + 1) % RETIRED_TOGETHER == 0) {
        rte_rcu_qsbr_quiescent(qsbr, 0);
        (void)rte_rcu_qsbr_dq_reclaim(queue, 2 * RETIRED_TOGETHER, NULL, NULL, NULL);
    }
}

/* The environment abstraction layer must be initialised, since the queue lies in its memory. */
void stillpoint_dpdk_micro_retire(uint64_t iterations)
{
    _Atomic(void *) shared = NULL;

    MICRO(iterations, struct rte_rcu_qsbr_dq *queue = new_queue(qsbr), retire_object(qsbr, queue, &shared, i_),
          {
              rte_rcu_qsbr_quiescent(qsbr, 0);
              (void)rte_rcu_qsbr_dq_delete(queue);
          });
    free(exchange_object(&shared, NULL));
}

static struct rte_rcu_qsbr *variable_of_two;

static void make_of_two(void)
{
    variable_of_two = new_for_one();
}

/* The variable of the two functions below, which are called at the same time. It is never freed. */
static struct rte_rcu_qsbr *of_two(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_of_two);
    return variable_of_two;
}

/* Waits for the reader below. */
void stillpoint_dpdk_micro_synchronize(uint64_t iterations)
{
    struct rte_rcu_qsbr *qsbr = of_two();

    REPEAT(iterations, rte_rcu_qsbr_synchronize(qsbr, RTE_QSBR_THRID_INVALID));
}

void stillpoint_dpdk_micro_reads(const _Atomic bool *stop, _Atomic bool *begun)
{
    struct rte_rcu_qsbr *qsbr = of_two();

    (void)stillpoint_dpdk_join(qsbr, 0);
    rte_rcu_qsbr_thread_online(qsbr, 0);
    UNTIL(stop, begun, rte_rcu_qsbr_quiescent(qsbr, 0));
    rte_rcu_qsbr_thread_offline(qsbr, 0);
    stillpoint_dpdk_leave(qsbr, 0);
}

void stillpoint_dpdk_micro_heavy(uint64_t iterations)
{
    MICRO(iterations, rte_rcu_qsbr_thread_offline(qsbr, 0),
          rte_rcu_qsbr_synchronize(qsbr, RTE_QSBR_THRID_INVALID), (void)0);
}
