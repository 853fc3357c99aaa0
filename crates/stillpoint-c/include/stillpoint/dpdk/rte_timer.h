/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * stillpoint's rte_timer.h, a drop-in for DPDK's: the same names, the same results. Each lcore has a timer wheel, which adds, stops and
 * resets timers in constant time; DPDK has a skip list.
 *
 * Put the folder of this file before DPDK's on the compiler's path, recompile, and link stillpoint instead of librte_timer. Without DPDK, a
 * thread sets its lcore with still_rte_lcore_set, and cycles are nanoseconds.
 *
 * WHAT IS DIFFERENT FROM DPDK'S
 *   A timer that is due can be stopped or reset until its function is called, for example by the function of another timer.
 *   The order in which one call runs the functions of due timers is not defined. rte_timer_alt_manage serves its lists one after
 *   the other, the list of the calling lcore first; DPDK calls the functions of all timers in the order of their times. If a function adds a
 *   timer that is due to a later list, the function of that timer is called in the same call.
 *   A timer that is pending in one instance may be reset or stopped in another one. The function of a timer may reset and stop it in any
 *   instance.
 *   An instance takes 34 KiB for each of its RTE_MAX_LCORE lists.
 *   Timers and instances belong to one process, and cannot be shared with another. Of two copies of the library in a process (see PLUGINS in
 *   stillpoint.h), only one has the timers.
 *   rte_timer_manage serves no timer that a library of DPDK has armed in DPDK's default instance, such as the watchdog of the driver net_ena.
 *   A program with one of these links librte_timer as well, and calls DPDK's rte_timer_manage from a file that is compiled with DPDK's header.
 *
 * THREADS
 *   Any number of threads may call the functions at once, except subsystem_init, finalize, data_alloc and data_dealloc. One thread at a time
 *   manages the list of an lcore. No lock is held during callbacks. Callbacks must return: they throw nothing, and call neither longjmp nor
 *   pthread_exit. They may call every function of this header, with one limit: functions whose names end in _sync are only for timers whose
 *   callbacks do not wait for the caller's timer.
 *
 * C99 or C++11; GCC or Clang.
 */
#ifndef STILL_RTE_TIMER_H
#define STILL_RTE_TIMER_H

/* DPDK's own header must not follow. */
#ifdef _RTE_TIMER_H_
#error "rte_timer.h of DPDK was included: put the folder stillpoint/dpdk before DPDK's"
#endif
#define _RTE_TIMER_H_

#include <sched.h>

#include "still_rte.h"

#ifdef STILL_RTE_DPDK
#include <rte_spinlock.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* States. */
#define RTE_TIMER_STOP 0    /* in no list */
#define RTE_TIMER_PENDING 1 /* in the list of its owner */
#define RTE_TIMER_RUNNING 2 /* its owner is calling its function */
#define RTE_TIMER_CONFIG 3  /* a thread is resetting or stopping it */

#define RTE_TIMER_NO_OWNER -2

enum rte_timer_type { SINGLE, PERIODICAL };

union rte_timer_status {
    __extension__ struct {
        uint16_t state;
        int16_t owner; /* an lcore; RTE_TIMER_NO_OWNER; or -1: a thread that has no lcore is resetting or stopping it */
    };
    uint32_t u32;
};

struct rte_timer;

/* The function of a timer. It may stop or reset the timer; after a stop, it may free the timer. If it initialises the timer again, it must
 * stop or reset the timer before it gives the timer to another thread. */
typedef void (*rte_timer_cb_t)(struct rte_timer *, void *);

/* A timer, which has the size of DPDK's. A program may read expire, status, period, f and arg, but must write no field. */
struct rte_timer {
    uint64_t expire;                        /* when it is due, in cycles */
    uint64_t still_node_[4];
    uint64_t still_home_;
    uint64_t still_unused_[5];
    volatile union rte_timer_status status;
    uint64_t period;                        /* in cycles; 0: once */
    rte_timer_cb_t f;
    void *arg;
};

#ifdef __cplusplus
#define RTE_TIMER_INITIALIZER { 0, { 0, 0, 0, 0 }, 0, { 0, 0, 0, 0, 0 }, { { RTE_TIMER_STOP, RTE_TIMER_NO_OWNER } }, 0, NULL, NULL }
#else
#define RTE_TIMER_INITIALIZER { .status = { { .state = RTE_TIMER_STOP, .owner = RTE_TIMER_NO_OWNER } } }
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * For the inline functions
 */

/* The instance that functions without a timer_data_id use. */
#define STILL_RTE_TIMER_DEFAULT_ 0u

int still_rte_timer_init_(uint32_t lcores);
uint32_t *still_rte_timer_turn_(uint32_t data, unsigned int lcore);
int still_rte_timer_reset_(uint32_t data, struct rte_timer *timer, uint64_t now, uint64_t ticks, uint64_t period, unsigned int lcore,
                           unsigned int target, rte_timer_cb_t f, void *arg);
int still_rte_timer_stop_(uint32_t data, struct rte_timer *timer, unsigned int lcore);
int still_rte_timer_manage_(uint32_t data, unsigned int lcore, uint64_t now);
int still_rte_timer_alt_manage_(uint32_t data, unsigned int lcore, uint64_t now, const unsigned int *lists, int count,
                                void (*f)(struct rte_timer *));
int64_t still_rte_timer_next_(uint32_t data, unsigned int lcore, uint64_t now);

/* Waits a moment between two tries. */
static inline void still_rte_timer_try_again_(unsigned int *tries)
{
    if (++*tries % 128 == 0)
        (void)sched_yield();
    else
        rte_pause();
}

/* ------------------------------------------------------------------------------------------------------------------
 * Instances
 */

/* Must be called first, with DPDK after rte_eal_init. 0; -EALREADY: it was called already; -EEXIST: another copy of the library has the
 * timers; -ENOMEM. */
static inline int rte_timer_subsystem_init(void)
{
    return still_rte_timer_init_(RTE_MAX_LCORE);
}

/* Frees all instances. Does not touch the timers that are pending: initialise them before you use them again. */
void rte_timer_subsystem_finalize(void) __asm__("still_rte_timer_subsystem_finalize");

/* Makes an instance, which has a list for each lcore. 0; -ENOSPC: there are 64; -ENOMEM: no memory, or no rte_timer_subsystem_init. */
int rte_timer_data_alloc(uint32_t *id_ptr) __asm__("still_rte_timer_data_alloc");

/* Frees one instance, as rte_timer_subsystem_finalize frees all. No thread may be resetting or stopping a timer that was pending in it when that
 * call began, or since, or in an earlier instance with its id. 0; -EINVAL: there is no such instance. */
int rte_timer_data_dealloc(uint32_t id) __asm__("still_rte_timer_data_dealloc");

/* ------------------------------------------------------------------------------------------------------------------
 * Timers
 */

/* Initialises a timer. The memory must not hold a pending timer. */
static inline void rte_timer_init(struct rte_timer *tim)
{
    union rte_timer_status status;
    for (int word = 0; word < 4; word++)
        tim->still_node_[word] = 0;
    status.state = RTE_TIMER_STOP;
    status.owner = RTE_TIMER_NO_OWNER;
    __atomic_store_n(&tim->status.u32, status.u32, __ATOMIC_RELEASE);
}

/* As rte_timer_reset, in an instance. A timer that is pending in another instance is stopped there first; that instance must not be freed
 * meanwhile. -EINVAL: there is no such instance or lcore. fct may be NULL if only rte_timer_alt_manage serves the instance. */
static inline int rte_timer_alt_reset(uint32_t timer_data_id, struct rte_timer *tim, uint64_t ticks, enum rte_timer_type type,
                                      unsigned int tim_lcore, rte_timer_cb_t fct, void *arg)
{
    unsigned int lcore = rte_lcore_id();
    if (unlikely(tim_lcore == (unsigned int)LCORE_ID_ANY)) {
        /* Each calling lcore chooses the lcores in turn. A thread that has no lcore chooses the first lcore. */
        uint32_t *turn = still_rte_timer_turn_(timer_data_id, lcore);
        tim_lcore = rte_get_next_lcore(turn != NULL ? *turn : (unsigned int)-1, 0, 1);
        if (turn != NULL)
            *turn = tim_lcore;
    }
    return still_rte_timer_reset_(timer_data_id, tim, rte_get_timer_cycles(), ticks, type == PERIODICAL ? ticks : 0, lcore,
                                  tim_lcore, fct, arg);
}

/* Arms a timer, pending or not: fct(tim, arg) is called in `ticks` cycles on the lcore tim_lcore; LCORE_ID_ANY: on the next lcore in turn. 0.
 * -1: the timer's function is running, and is not the caller, or another thread is resetting or stopping the timer. -EINVAL: there is no such
 * lcore, or rte_timer_subsystem_init was not called. Constant time; allocates nothing. */
static inline int rte_timer_reset(struct rte_timer *tim, uint64_t ticks, enum rte_timer_type type, unsigned int tim_lcore,
                                  rte_timer_cb_t fct, void *arg)
{
    return rte_timer_alt_reset(STILL_RTE_TIMER_DEFAULT_, tim, ticks, type, tim_lcore, fct, arg);
}

/* Repeats rte_timer_reset while it returns -1. */
static inline void rte_timer_reset_sync(struct rte_timer *tim, uint64_t ticks, enum rte_timer_type type, unsigned int tim_lcore,
                                        rte_timer_cb_t fct, void *arg)
{
    unsigned int tries = 0;
    while (rte_timer_reset(tim, ticks, type, tim_lcore, fct, arg) == -1)
        still_rte_timer_try_again_(&tries);
}

/* As rte_timer_stop, in whichever instance the timer is pending. -EINVAL: there is no such instance. */
static inline int rte_timer_alt_stop(uint32_t timer_data_id, struct rte_timer *tim)
{
    return still_rte_timer_stop_(timer_data_id, tim, rte_lcore_id());
}

/* Stops a timer, pending or not. 0: its memory is the program's again, even within its own function. -1 as for rte_timer_reset. Constant time. */
static inline int rte_timer_stop(struct rte_timer *tim)
{
    return rte_timer_alt_stop(STILL_RTE_TIMER_DEFAULT_, tim);
}

/* Repeats rte_timer_stop while it returns -1. */
static inline void rte_timer_stop_sync(struct rte_timer *tim)
{
    unsigned int tries = 0;
    while (rte_timer_stop(tim) == -1)
        still_rte_timer_try_again_(&tries);
}

/* 1 if the timer is pending, else 0. */
static inline int rte_timer_pending(struct rte_timer *tim)
{
    union rte_timer_status status;
    status.u32 = __atomic_load_n(&tim->status.u32, __ATOMIC_RELAXED);
    return status.state == RTE_TIMER_PENDING;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Time
 */

/* Calls the functions of all timers of this lcore that are due. A periodic timer is armed again, one period after its last deadline. If it is
 * late, its function is called once in each call until it has caught up. 0; -EINVAL: rte_timer_subsystem_init was not called, or the calling
 * thread has no lcore. */
static inline int rte_timer_manage(void)
{
    return still_rte_timer_manage_(STILL_RTE_TIMER_DEFAULT_, rte_lcore_id(), rte_get_timer_cycles());
}

typedef void (*rte_timer_alt_manage_cb_t)(struct rte_timer *tim);

/* Calls f, instead of their own functions, for all timers of these lists that are due. poll_lcores NULL: the list of this lcore. A periodic
 * timer is armed again in the list of the calling lcore. The numbers must not change before the call returns; a function that frees the
 * instance may free them, too. 0; -EINVAL: there is no such instance or list, or the calling thread has no lcore. */
static inline int rte_timer_alt_manage(uint32_t timer_data_id, unsigned int *poll_lcores, int n_poll_lcores, rte_timer_alt_manage_cb_t f)
{
    return still_rte_timer_alt_manage_(timer_data_id, rte_lcore_id(), rte_get_timer_cycles(), poll_lcores, n_poll_lcores, f);
}

/* Cycles until the next timer of this lcore is due; 0: a timer is due. -ENOENT: no timer is pending. -EINVAL as for rte_timer_manage. Looks
 * at the timers in the first slot of each level of the wheel, with the list locked; these are many if all timers are far ahead. */
static inline int64_t rte_timer_next_ticks(void)
{
    return still_rte_timer_next_(STILL_RTE_TIMER_DEFAULT_, rte_lcore_id(), rte_get_timer_cycles());
}

typedef void (*rte_timer_stop_all_cb_t)(struct rte_timer *tim, void *arg);

/* Stops all pending timers of these lists, and calls f(tim, f_arg) for each, in no order; f may be NULL. A timer that f arms stays armed,
 * unless it is in a list whose turn has not come.
 * No other thread may stop one of them and free it meanwhile: f is called with it. 0; -EINVAL: no such instance or list. */
int rte_timer_stop_all(uint32_t timer_data_id, unsigned int *walk_lcores, int nb_walk_lcores, rte_timer_stop_all_cb_t f,
                       void *f_arg) __asm__("still_rte_timer_stop_all");

/* Prints how often lcores reset, stopped and managed timers, and how many timers are pending. 0; -EINVAL: there is no such instance. */
int rte_timer_alt_dump_stats(uint32_t timer_data_id, FILE *f) __asm__("still_rte_timer_alt_dump_stats");

static inline int rte_timer_dump_stats(FILE *f)
{
    return rte_timer_alt_dump_stats(STILL_RTE_TIMER_DEFAULT_, f);
}

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
#define STILL_RTE_AT_(what, number) static_assert(what == number, "the layout of DPDK")
#elif !defined(_Static_assert) /* in strict C99 it is a macro of glibc, which declares a function each time */
#define STILL_RTE_AT_(what, number) __extension__ _Static_assert(what == number, "the layout of DPDK")
#else
#define STILL_RTE_AT_(what, number) struct rte_timer
#endif
STILL_RTE_AT_(sizeof(struct rte_timer), 120);
STILL_RTE_AT_(offsetof(struct rte_timer, still_node_), 8);
STILL_RTE_AT_(offsetof(struct rte_timer, status), 88);
STILL_RTE_AT_(offsetof(struct rte_timer, period), 96);
STILL_RTE_AT_(offsetof(struct rte_timer, f), 104);
STILL_RTE_AT_(offsetof(struct rte_timer, arg), 112);
#undef STILL_RTE_AT_

#endif
