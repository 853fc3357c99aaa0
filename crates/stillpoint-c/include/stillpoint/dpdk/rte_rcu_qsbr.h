/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * stillpoint's rte_rcu_qsbr.h, a drop-in for DPDK's: the same names, the same memory layout, the same results.
 *
 * Put the folder of this file before DPDK's on the compiler's path, recompile, and link stillpoint instead of librte_rcu:
 *
 *     cc -I$prefix/include/stillpoint/dpdk $(pkg-config --cflags libdpdk) ... -lstillpoint $(pkg-config --libs libdpdk)
 *
 * A variable may be passed to a compiled rte_hash or rte_lpm, and may lie in memory that processes share.
 *
 * WHAT IT IS
 *   A variable joins up to max_threads readers, which have ids. A reader that is online holds up every grace period that began since
 *   its last quiescent state. A reader that is offline holds up nothing. A grace period has a number, its token.
 *   Any thread may use any id, but only one thread at a time may use an id.
 *
 * WHAT IS BETTER THAN IN DPDK'S
 *   rte_rcu_qsbr_start orders the unlink before the check on every processor. A check reads the recorded token with acquire, and never
 *   records a token that began during its scan. When an id unregisters, checks that wait for it continue, even if all ids are taken. A
 *   quiescent state of an offline id brings the id online with the fence that this needs. A waiting check spins for some microseconds,
 *   and then sleeps, at most 10 ms at a time. still_rte_rcu_check_timeout waits no longer than its limit. still_rte_rcu_stall names the
 *   thread that holds up a token.
 *
 * WHAT IS THE SAME
 *   Readers report quiescent states, as in DPDK: a reader that is preempted or blocks while it is online holds up everything. For readers
 *   that may be preempted, see still_protect in stillpoint.h.
 *
 * ERRORS
 *   A function of DPDK that fails returns 1 or NULL, and sets rte_errno and errno. still_rte_rcu_check_timeout and still_rte_rcu_stall
 *   return a negative errno instead. In both cases, still_error() of stillpoint.h gives the reason in words. Without DPDK's
 *   headers, rte_errno is errno. Inline functions check only what RTE_ASSERT checks.
 *
 * THREADS
 *   Any number of threads may call the functions at once, except init, dump and dq_delete.
 *
 * C99 or C++11; GCC or Clang; cache lines of 64 bytes.
 */
#ifndef STILL_RTE_RCU_QSBR_H
#define STILL_RTE_RCU_QSBR_H

/* DPDK's own header must not follow. */
#ifdef _RTE_RCU_QSBR_H_
#error "rte_rcu_qsbr.h of DPDK was included: put the folder stillpoint/dpdk before DPDK's"
#endif
#define _RTE_RCU_QSBR_H_

#include "still_rte.h"

#ifdef STILL_RTE_DPDK
#include <rte_atomic.h>
#include <rte_ring.h>
#else
#define RTE_RING_NAMESIZE 29
#endif

#if RTE_CACHE_LINE_SIZE != 64
#error "rte_rcu_qsbr.h of stillpoint needs cache lines of 64 bytes"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * The memory of a variable
 */

#define __RTE_QSBR_THRID_ARRAY_ELM_SIZE (sizeof(uint64_t) * 8)
#define __RTE_QSBR_THRID_ARRAY_SIZE(max_threads) \
    RTE_ALIGN(RTE_ALIGN_MUL_CEIL(max_threads, __RTE_QSBR_THRID_ARRAY_ELM_SIZE) >> 3, RTE_CACHE_LINE_SIZE)
#define __RTE_QSBR_THRID_ARRAY_ELM(v, i) (((uint64_t *)(void *)((struct rte_rcu_qsbr_cnt *)((v) + 1) + (v)->max_threads)) + (i))
#define __RTE_QSBR_THRID_INDEX_SHIFT 6
#define __RTE_QSBR_THRID_MASK 0x3f
#define RTE_QSBR_THRID_INVALID 0xffffffff

#define __RTE_QSBR_CNT_THR_OFFLINE 0
#define __RTE_QSBR_CNT_INIT 1
#define __RTE_QSBR_CNT_MAX ((uint64_t)~0)
#define __RTE_QSBR_TOKEN_SIZE sizeof(uint64_t)

/* The state of an id. */
struct rte_rcu_qsbr_cnt {
    uint64_t cnt;        /* the last token that was reported; 0: offline */
    uint32_t lock_cnt;   /* locks that are held; counted only with RTE_LIBRTE_RCU_DEBUG */
    uint32_t still_tid_; /* the thread that put the id online, for reports; in DPDK's padding */
} __attribute__((__aligned__(RTE_CACHE_LINE_SIZE)));

/* A struct rte_rcu_qsbr_cnt for each id follows, and then the bitmap of the ids that are registered. */
struct rte_rcu_qsbr {
    uint64_t token __attribute__((__aligned__(RTE_CACHE_LINE_SIZE)));
    uint64_t acked_token;
    uint64_t still_acked_;     /* in DPDK's padding, like the next field */
    uint32_t still_attention_;
    uint32_t num_elems __attribute__((__aligned__(RTE_CACHE_LINE_SIZE)));
    uint32_t num_threads;
    uint32_t max_threads;
    __extension__ struct rte_rcu_qsbr_cnt qsbr_cnt[0] __attribute__((__aligned__(RTE_CACHE_LINE_SIZE)));
} __attribute__((__aligned__(RTE_CACHE_LINE_SIZE)));

/* The size in bytes of a variable for this many ids. 1, EINVAL: max_threads is 0. */
size_t rte_rcu_qsbr_get_memsize(uint32_t max_threads) __asm__("still_rte_rcu_qsbr_get_memsize");

/* Makes a variable in memory of that size, aligned to 64. 0; or 1, EINVAL: v is NULL or not aligned, or max_threads is 0. The memory
 * may be freed when no thread uses the variable any more. */
int rte_rcu_qsbr_init(struct rte_rcu_qsbr *v, uint32_t max_threads) __asm__("still_rte_rcu_qsbr_init");

/* ------------------------------------------------------------------------------------------------------------------
 * Readers
 */

/* Registers an id, so that checks look at it. It is offline at first. 0, also if it was registered; or 1, EINVAL: v is NULL, or there is no
 * such id. */
int rte_rcu_qsbr_thread_register(struct rte_rcu_qsbr *v, unsigned int thread_id) __asm__("still_rte_rcu_qsbr_thread_register");

/* Takes an id offline and unregisters it. Checks that wait for it continue. 0 or 1 as above. */
int rte_rcu_qsbr_thread_unregister(struct rte_rcu_qsbr *v, unsigned int thread_id) __asm__("still_rte_rcu_qsbr_thread_unregister");

/* For the inline functions: wakes the checks that sleep; stores the calling thread's id in *tid. */
void still_rte_rcu_wake_(struct rte_rcu_qsbr *v);
void still_rte_rcu_here_(uint32_t *tid);

#ifdef RTE_LIBRTE_RCU_DEBUG

/* Reports misuse. A program may define it before it includes this file. */
#ifndef STILL_RTE_REPORT
#ifdef STILL_RTE_DPDK
#define STILL_RTE_REPORT(...) ((void)rte_log(RTE_LOG_ERR, RTE_LOGTYPE_EAL, __VA_ARGS__))
#else
#define STILL_RTE_REPORT(...) ((void)fprintf(stderr, __VA_ARGS__))
#endif
#endif

#define __RTE_RCU_IS_LOCK_CNT_ZERO(v, thread_id, level, ...)                                            \
    do {                                                                                                \
        uint32_t still_locks_ = __atomic_load_n(&(v)->qsbr_cnt[thread_id].lock_cnt, __ATOMIC_RELAXED);   \
        if (unlikely(still_locks_ != 0))                                                                \
            STILL_RTE_REPORT("%s(): id %u holds %u locks\n", __func__, thread_id, still_locks_);                            \
    } while (0)

#else

#define __RTE_RCU_IS_LOCK_CNT_ZERO(v, thread_id, level, ...) ((void)0)

#endif

#define __RTE_RCU_DP_LOG(level, ...) ((void)0)

/* Called when a reader has stored its count. */
static inline void still_rte_rcu_answer_(struct rte_rcu_qsbr *v)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (unlikely(__atomic_load_n(&v->still_attention_, __ATOMIC_RELAXED) != 0))
        still_rte_rcu_wake_(v);
}

/* Puts a registered id online: grace periods wait for it from now on. They do not wait for an id that is not registered. */
static __rte_always_inline void rte_rcu_qsbr_thread_online(struct rte_rcu_qsbr *v, unsigned int thread_id)
{
    RTE_ASSERT(v != NULL && thread_id < v->max_threads);
    __RTE_RCU_IS_LOCK_CNT_ZERO(v, thread_id, ERR, "locks");
    struct rte_rcu_qsbr_cnt *id = &v->qsbr_cnt[thread_id];
    /* Stored before the count, so that a stall report that finds the count also finds its thread. */
    still_rte_rcu_here_(&id->still_tid_);
    /* Acquire: pairs with the addition in rte_rcu_qsbr_start. Release: pairs with the acquire load of the count in a check. The fence pairs
     * with that of rte_rcu_qsbr_start: either a check sees the count, or this reader does not find what was unlinked. */
    uint64_t token = __atomic_load_n(&v->token, __ATOMIC_ACQUIRE);
    __atomic_store_n(&id->cnt, token, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Takes an id offline: grace periods do not wait for it. Call it before the thread blocks. */
static __rte_always_inline void rte_rcu_qsbr_thread_offline(struct rte_rcu_qsbr *v, unsigned int thread_id)
{
    RTE_ASSERT(v != NULL && thread_id < v->max_threads);
    __RTE_RCU_IS_LOCK_CNT_ZERO(v, thread_id, ERR, "locks");
    struct rte_rcu_qsbr_cnt *id = &v->qsbr_cnt[thread_id];
    __atomic_store_n(&id->still_tid_, 0, __ATOMIC_RELAXED);
    /* Release: pairs with the acquire load of the count in a check. The reader's accesses come before the free. */
    __atomic_store_n(&id->cnt, __RTE_QSBR_CNT_THR_OFFLINE, __ATOMIC_RELEASE);
    still_rte_rcu_answer_(v);
}

/* Reports a quiescent state: the reader holds nothing at this moment. It is online afterwards. */
static __rte_always_inline void rte_rcu_qsbr_quiescent(struct rte_rcu_qsbr *v, unsigned int thread_id)
{
    RTE_ASSERT(v != NULL && thread_id < v->max_threads);
    __RTE_RCU_IS_LOCK_CNT_ZERO(v, thread_id, ERR, "locks");
    struct rte_rcu_qsbr_cnt *id = &v->qsbr_cnt[thread_id];
    /* Acquire: pairs with the addition in rte_rcu_qsbr_start. Release: pairs with the acquire load of the count in a check. */
    uint64_t token = __atomic_load_n(&v->token, __ATOMIC_ACQUIRE);
    uint64_t before = __atomic_load_n(&id->cnt, __ATOMIC_RELAXED);
    if (unlikely(token != before)) {
        if (unlikely(before == __RTE_QSBR_CNT_THR_OFFLINE)) {
            rte_rcu_qsbr_thread_online(v, thread_id);
        } else {
            __atomic_store_n(&id->cnt, token, __ATOMIC_RELEASE);
            still_rte_rcu_answer_(v);
        }
    }
}

/* A lock and an unlock enclose accesses. With RTE_LIBRTE_RCU_DEBUG, these functions report an id that reports a quiescent state, or goes
 * online or offline, between the two. */
static __rte_always_inline void rte_rcu_qsbr_lock(__rte_unused struct rte_rcu_qsbr *v, __rte_unused unsigned int thread_id)
{
    RTE_ASSERT(v != NULL && thread_id < v->max_threads);
#ifdef RTE_LIBRTE_RCU_DEBUG
    (void)__atomic_fetch_add(&v->qsbr_cnt[thread_id].lock_cnt, 1, __ATOMIC_ACQUIRE);
#endif
}

static __rte_always_inline void rte_rcu_qsbr_unlock(__rte_unused struct rte_rcu_qsbr *v, __rte_unused unsigned int thread_id)
{
    RTE_ASSERT(v != NULL && thread_id < v->max_threads);
#ifdef RTE_LIBRTE_RCU_DEBUG
    (void)__atomic_fetch_sub(&v->qsbr_cnt[thread_id].lock_cnt, 1, __ATOMIC_RELEASE);
    __RTE_RCU_IS_LOCK_CNT_ZERO(v, thread_id, WARNING, "nested locks");
#endif
}

/* ------------------------------------------------------------------------------------------------------------------
 * Writers
 */

/* Starts a grace period for the elements that were unlinked before. Returns its token, which is never 0. */
static __rte_always_inline uint64_t rte_rcu_qsbr_start(struct rte_rcu_qsbr *v)
{
    RTE_ASSERT(v != NULL);
#if !defined(__x86_64__)
    /* Pairs with the fence of rte_rcu_qsbr_thread_online. Before the addition, so that it also comes before the scan of another thread that has
     * seen the token. On x86-64 the addition is a full fence itself. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    /* Pairs with the acquire loads of the token by readers and scans. */
    return __atomic_add_fetch(&v->token, 1, __ATOMIC_SEQ_CST);
}

/* For the inline functions. */
int still_rte_rcu_check_(struct rte_rcu_qsbr *v, uint64_t t, int wait);

static __rte_always_inline int __rte_rcu_qsbr_check_selective(struct rte_rcu_qsbr *v, uint64_t t, bool wait)
{
    return still_rte_rcu_check_(v, t, wait);
}

static __rte_always_inline int __rte_rcu_qsbr_check_all(struct rte_rcu_qsbr *v, uint64_t t, bool wait)
{
    return still_rte_rcu_check_(v, t, wait);
}

/* 1 if the grace period is over, else 0. With `wait`, waits until it is over. The calling thread must not be online with a
 * count that is older than t: it would wait for itself. */
static __rte_always_inline int rte_rcu_qsbr_check(struct rte_rcu_qsbr *v, uint64_t t, bool wait)
{
    RTE_ASSERT(v != NULL);
    /* Acquire: pairs with the release store of another check, which the library makes after its scan. */
    if (likely(t <= __atomic_load_n(&v->still_acked_, __ATOMIC_ACQUIRE)))
        return 1;
    return still_rte_rcu_check_(v, t, wait);
}

/* Starts a grace period, and waits for it. `thread_id` is the id with which the calling thread is online; the call reports a quiescent state
 * for this id. RTE_QSBR_THRID_INVALID: the calling thread is not online. */
void rte_rcu_qsbr_synchronize(struct rte_rcu_qsbr *v, unsigned int thread_id) __asm__("still_rte_rcu_qsbr_synchronize");

/* As rte_rcu_qsbr_check with `wait`, but waits for at most `nanoseconds`; -1: no limit. 1 if the grace period is over, else 0. -EINVAL: v is
 * NULL, or the time is negative and not -1. */
int still_rte_rcu_check_timeout(struct rte_rcu_qsbr *v, uint64_t t, int64_t nanoseconds);

/* A reader that holds up a grace period. */
struct still_rte_rcu_report {
    size_t size;        /* set by the caller: sizeof(struct still_rte_rcu_report) */
    uint32_t thread_id; /* the lowest id that holds it up */
    uint32_t tid;       /* the thread that put it online (gettid(2)); 0: code of DPDK's header put it online, or the thread has ended */
    uint32_t others;    /* how many other ids hold it up */
    uint32_t locks;     /* the id's lock_cnt */
    uint64_t reported;  /* the token that it reported last */
    char name[16];      /* the thread's name, as in /proc; "" if it is not known */
};

/* 1, and fills `stall`, if a reader holds up the grace period t; 0 if none does. -EINVAL: a pointer is NULL, or the size is unknown. A
 * reader in another namespace of processes may be named wrongly. */
int still_rte_rcu_stall(struct rte_rcu_qsbr *v, uint64_t t, struct still_rte_rcu_report *stall);

/* Prints the state of the variable. 0; or 1, EINVAL: f or v is NULL. */
int rte_rcu_qsbr_dump(FILE *f, struct rte_rcu_qsbr *v) __asm__("still_rte_rcu_qsbr_dump");

/* ------------------------------------------------------------------------------------------------------------------
 * Defer queues
 */

/* Frees the resources of the element `e` (n is 1). `e` is a copy that is valid until the function returns. No lock is held: the function may
 * call any function except rte_rcu_qsbr_dq_delete on this queue. */
typedef void (*rte_rcu_qsbr_free_resource_t)(void *p, void *e, unsigned int n);

#define RTE_RCU_QSBR_DQ_NAMESIZE RTE_RING_NAMESIZE

/* In DPDK, a queue with this flag is for one thread at a time. Here the flag has no effect: any number of threads may use any queue. */
#define RTE_RCU_QSBR_DQ_MT_UNSAFE 1

struct rte_rcu_qsbr_dq_parameters {
    const char *name;                     /* the queue's name; copied */
    uint32_t flags;                       /* 0 or RTE_RCU_QSBR_DQ_MT_UNSAFE */
    uint32_t size;                        /* elements; the capacity is the next power of two above it, minus 1 */
    uint32_t esize;                       /* bytes of an element, a multiple of 4 */
    uint32_t trigger_reclaim_limit;       /* an enqueue reclaims if there are more elements than this; above size: never */
    uint32_t max_reclaim_size;            /* how many elements such an enqueue reclaims at most */
    rte_rcu_qsbr_free_resource_t free_fn;
    void *p;                              /* passed to free_fn; may be NULL */
    struct rte_rcu_qsbr *v;
};

struct rte_rcu_qsbr_dq;

/* Makes a defer queue. NULL: EINVAL: a parameter is missing or wrong; ENOMEM. */
struct rte_rcu_qsbr_dq *rte_rcu_qsbr_dq_create(const struct rte_rcu_qsbr_dq_parameters *params) __asm__("still_rte_rcu_qsbr_dq_create");

/* Copies an unlinked element into the queue, and starts its grace period. 0; or 1: EINVAL for NULL; ENOSPC: the queue is full, and the element
 * stays the caller's. */
int rte_rcu_qsbr_dq_enqueue(struct rte_rcu_qsbr_dq *dq, void *e) __asm__("still_rte_rcu_qsbr_dq_enqueue");

/* Frees at most n elements, in order, and stops before the first element whose grace period is not over. Sets the numbers of elements that
 * were freed, that wait, and that still fit; each pointer may be NULL. 0; or 1, EINVAL: dq is NULL, or n is 0. */
int rte_rcu_qsbr_dq_reclaim(struct rte_rcu_qsbr_dq *dq, unsigned int n, unsigned int *freed, unsigned int *pending,
                            unsigned int *available) __asm__("still_rte_rcu_qsbr_dq_reclaim");

/* Frees the queue with its elements. 0, also for NULL. 1, EAGAIN: the grace period of an element is not over; the queue stays, with the elements
 * that could not be freed. */
int rte_rcu_qsbr_dq_delete(struct rte_rcu_qsbr_dq *dq) __asm__("still_rte_rcu_qsbr_dq_delete");

#ifdef __cplusplus
}
#endif

/* The layout of DPDK. The library asserts the same numbers. */
#ifdef __cplusplus
#define STILL_RTE_AT_(what, number) static_assert(what == number, "the layout of DPDK")
#elif !defined(_Static_assert) /* in strict C99 it is a macro of glibc, which declares a function each time */
#define STILL_RTE_AT_(what, number) __extension__ _Static_assert(what == number, "the layout of DPDK")
#else
#define STILL_RTE_AT_(what, number) struct rte_rcu_qsbr
#endif
STILL_RTE_AT_(sizeof(struct rte_rcu_qsbr), 128);
STILL_RTE_AT_(sizeof(struct rte_rcu_qsbr_cnt), 64);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr, acked_token), 8);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr, still_acked_), 16);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr, still_attention_), 24);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr, num_elems), 64);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr, num_threads), 68);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr, max_threads), 72);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr_cnt, lock_cnt), 8);
STILL_RTE_AT_(offsetof(struct rte_rcu_qsbr_cnt, still_tid_), 12);
#undef STILL_RTE_AT_

#endif
