/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * htimer.h: timers with functions. Each thread has a wheel of its own; other threads add and cancel timers there by requests, whose
 * results come back to them. The operations are those of the htimer library that was proposed to DPDK; docs/guide/from-dpdk.md of the
 * repository has a table. With or without DPDK.
 *
 *     struct flow { struct still_htimer timeout; ... };
 *
 *     still_htimer_start(NULL);                              // once on each thread
 *     still_htimer_add(&flow->timeout, 30 * UINT64_C(1000000000), 0, flow_times_out, flow, 0);
 *     for (;;) {
 *         receive_packets();                                 // may cancel the timer, and add it again
 *         still_htimer_manage();                             // calls flow_times_out(&flow->timeout, flow) when the time has come
 *     }
 *
 * TIME
 *   A wheel counts ticks of 1,024 ns, or what the options say. Times are in nanoseconds, or, by a flag, in ticks or in cycles of the
 *   processor's counter. A time is a delay from the target's last still_htimer_manage when it takes the timer, or, with
 *   STILL_HTIMER_ABSOLUTE, a point in time: nanoseconds or ticks since the zero of the manager's clock, or a value of the counter.
 *   By that clock a timer is never early. It is due at the first tick that is not before its time.
 *   The clock is the counter. The first still_htimer_start of a process aligns it with CLOCK_MONOTONIC; after that they drift apart, by
 *   some microseconds a second, and further while the machine is suspended.
 *   A thread that sleeps between its calls asks still_htimer_next how long it may. Requests of others do not wake it.
 *
 * WHOSE A TIMER IS
 *   A timer is the program's while it is in no wheel. From still_htimer_add on, it belongs to the calling thread's manager, until its
 *   function is called for the last time, or, without STILL_HTIMER_TELL_CANCEL, until it is cancelled. Then it may be added again, or
 *   freed, even by that function.
 *   From still_htimer_async_add on, it belongs to the target. Other threads may only cancel it, by still_htimer_async_cancel, and must
 *   keep its memory until the result has come. A result other than STILL_HTIMER_ADDED is final: the timer is in no wheel, unless its
 *   function has added it again. A cancellation follows a timer that was given to another thread. Who asks for an addition is not told
 *   when the timer expires: its function knows.
 *   A timer that is pending, or on its way to a thread, is not taken: -EBUSY.
 *
 * THREADS
 *   Every call is for the calling thread's manager, except that requests go to others. No call waits for another thread.
 *   A request takes one of the places that the thread has (256, or `requests`), and its result comes back in the same place. So nothing is
 *   ever lost for want of room: without a place, a request is refused, and the timer is the caller's. Requests of one thread to another
 *   are taken in, in their order.
 *   Functions are called by still_htimer_manage, still_htimer_process and still_htimer_stop, on the thread that calls these, and by
 *   cancellations of timers with STILL_HTIMER_TELL_CANCEL. They may call everything here except manage, process and stop (-EBUSY); while
 *   still_htimer_stop runs, nothing is added and nothing asked for (-EPIPE). They must return: no exception, no longjmp, no pthread_exit.
 *   No function may be called from a signal handler.
 *   When a thread ends, its manager stops. It touches no timer that was in its wheel: set those to zero before you use them again.
 *   Requests on their way to it get the result STILL_HTIMER_GONE.
 *   The child of a fork has one thread, and must call still_htimer_reset_after_fork before it asks for anything.
 *
 * ERRORS are those of stillpoint.h. Also, from all functions that are for the calling thread's manager: -ESRCH, it has none. Only
 * still_htimer_start allocates: 36 KiB, and 64 bytes for each request, which stay for threads that start later.
 *
 * If DPDK's headers are on the compiler's path, managers know their lcores, and the program needs DPDK's libraries. Define
 * STILL_HTIMER_WITHOUT_DPDK if it has none.
 *
 * C11 or C++17; GCC or Clang.
 */
#ifndef STILLPOINT_HTIMER_H
#define STILLPOINT_HTIMER_H

#include <stillpoint.h>

#if defined(__has_include) && !defined(STILL_HTIMER_WITHOUT_DPDK)
#if __has_include(<rte_config.h>) && __has_include(<rte_lcore.h>)
#include <rte_config.h>
#include <rte_lcore.h>
#define STILL_HTIMER_DPDK 1
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A timer: 64 bytes, initialised with STILL_HTIMER_INIT or with zeros. */
struct still_htimer {
    struct still_timer node_;
    uint64_t words_[4];
};

#define STILL_HTIMER_INIT { STILL_TIMER_INIT, { 0, 0, 0, 0 } }

/* What is called when a timer expires, on its thread. */
typedef void still_htimer_fn(struct still_htimer *timer, void *argument) STILL_NOEXCEPT;

/* Flags of a timer. */
#define STILL_HTIMER_ABSOLUTE 1u    /* the time is a point in time, not a delay */
#define STILL_HTIMER_PERIODICAL 2u  /* expires every `period`, rounded up to ticks; beats that are missed are left out */
#define STILL_HTIMER_TICKS 4u       /* times are in ticks of the target; a delay begins at the end of the tick that has begun */
#define STILL_HTIMER_TSC 8u         /* times are in cycles of the processor's counter: rdtsc, or cntvct_el0 */
#define STILL_HTIMER_TELL_CANCEL 16u /* the function is also called on cancellation: still_htimer_state then says STILL_HTIMER_CANCELLED */

/* ------------------------------------------------------------------------------------------------------------------
 * Managers: of the timers of a thread
 */

/* The manager of a thread's timers. A process has at most 4,095. A pointer to one stays valid for ever; once its thread has ended or
 * stopped it, requests are refused (-EPIPE), and later it may be the manager of another thread. */
struct still_htimer_mgr;

struct still_htimer_options {
    size_t size;       /* sizeof(struct still_htimer_options) */
    uint64_t tick;     /* nanoseconds, a power of two; 0: 1,024, or 1 with `no_clock` */
    size_t requests;   /* how many requests may be without a result: 16 to 1,048,576, rounded up to a power of two; 0: 256 */
    size_t burst;      /* how many timers a call expires at most; 0: all that are due. Does not limit requests, results, and
                        * what the wheel moves to where it is due sooner */
    uint64_t begin;    /* with `no_clock`: the time at which the wheel begins, in ticks */
    uint32_t no_clock; /* 1: the thread calls still_htimer_manage_time only, and may count whatever it likes as nanoseconds */
    uint32_t reserved; /* 0 */
};

#define STILL_HTIMER_OPTIONS_INIT { sizeof(struct still_htimer_options), 0, 0, 0, 0, 0, 0 }

int still_htimer_start_(const struct still_htimer_options *options, unsigned int lcore) STILL_NOEXCEPT;

/* Makes the manager of the calling thread. NULL: the usual options. The first manager with a clock takes 10 ms, to calibrate it. -EALREADY:
 * there is one already. -EINVAL: an option is impossible. -ENOMEM. -EAGAIN: there are 4,095 managers, or see THREADS in stillpoint.h. */
static inline int still_htimer_start(const struct still_htimer_options *options) STILL_NOEXCEPT
{
#ifdef STILL_HTIMER_DPDK
    return still_htimer_start_(options, rte_lcore_id());
#else
    return still_htimer_start_(options, UINT32_MAX);
#endif
}

/* Cancels all timers of the calling thread, and stops its manager. Returns how many there were. -EBUSY: requests of this thread have no
 * result yet; call still_htimer_process, while their targets do, until they have. Takes time in proportion to the timers. */
ssize_t still_htimer_stop(void) STILL_NOEXCEPT;

/* In the child of a fork: stops the managers of the threads that are not there. Requests that were under way at the fork get no result,
 * and their places are free again. The calling thread's manager goes on. Set timers of other threads to zero before you use them again.
 * -EBUSY: in a function that the manager calls. */
int still_htimer_reset_after_fork(void) STILL_NOEXCEPT;

/* The calling thread's manager, for other threads. errno: ESRCH. */
STILL_NODISCARD struct still_htimer_mgr *still_htimer_mgr_self(void) STILL_NOEXCEPT;

/* With DPDK: the manager of a lcore, also of a thread that was registered. Reads a word for each thread that has a manager: keep the
 * pointer. errno: ESRCH. */
STILL_NODISCARD struct still_htimer_mgr *still_htimer_mgr_of_lcore(unsigned int lcore) STILL_NOEXCEPT;

/* Sets the time, takes in what other threads have asked for, tells the results of this thread's requests, and calls the functions of
 * the timers that are due. Returns how many it has called. -EOPNOTSUPP: the manager has no clock. */
ssize_t still_htimer_manage(void) STILL_NOEXCEPT;

/* The same at this time, which is a point in time in the unit of the flag; a time that is earlier than the last one is ignored. Reads no
 * clock. -EOPNOTSUPP: STILL_HTIMER_TSC, where there is no counter of constant speed, or no clock. */
ssize_t still_htimer_manage_time(uint64_t now, uint32_t flags) STILL_NOEXCEPT;

/* Only takes in what other threads have asked for, and tells the results of this thread's requests. Returns how many of both there were. */
ssize_t still_htimer_process(void) STILL_NOEXCEPT;

/* The time of the last manage, in nanoseconds, or in ticks with STILL_HTIMER_TICKS. 0 on failure, with errno. */
uint64_t still_htimer_time(uint32_t flags) STILL_NOEXCEPT;

/* 1, and a point in time at which the thread has to manage again, in nanoseconds, or in ticks with STILL_HTIMER_TICKS; no timer is due
 * before. 0: there is no timer. Constant time. */
STILL_NODISCARD int still_htimer_next(uint64_t *time, uint32_t flags) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Local: timers of the calling thread
 */

/* Adds a timer: constant time. With STILL_HTIMER_PERIODICAL, it expires at `time`, and then by `period`. -EINVAL: that is 0, or flags
 * contradict each other. -EBUSY: it is pending, or on its way to a thread. -EOPNOTSUPP:
 * STILL_HTIMER_TSC, and the target has no counter of constant speed, or no clock. */
int still_htimer_add(struct still_htimer *timer, uint64_t time, uint64_t period, still_htimer_fn *function, void *argument,
                     uint32_t flags) STILL_NOEXCEPT;

/* What a timer is, and what became of a request. */
enum still_htimer_result {
    STILL_HTIMER_IDLE = 0,              /* it was never added */
    STILL_HTIMER_ADDED = 1,             /* it is pending */
    STILL_HTIMER_CANCELLED = 2,         /* it was cancelled, and its function will not be called */
    STILL_HTIMER_EXPIRED = 3,           /* it has expired, and its function was called, or is being called */
    STILL_HTIMER_ALREADY_CANCELLED = 4, /* only a result: it was cancelled before, or never added */
    STILL_HTIMER_GONE = 5,              /* only a result: its thread had stopped its manager, or ended */
    STILL_HTIMER_SENT = 6               /* only a state: it is on its way to its thread */
};

/* Cancels a timer: constant time. Returns STILL_HTIMER_CANCELLED, STILL_HTIMER_EXPIRED or
 * STILL_HTIMER_ALREADY_CANCELLED. -EBUSY: it is another thread's. */
int still_htimer_cancel(struct still_htimer *timer) STILL_NOEXCEPT;

/* What a timer is. For its own thread; another one gets an answer that may be out of date: only a result, or the timer's function, says
 * that it has ended, and may be added or freed. */
int still_htimer_state(const struct still_htimer *timer) STILL_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------------
 * Remote: timers of another thread, or of this one
 */

/* What is called with a result, on the thread that has asked. NULL: nobody asks for it. */
typedef void still_htimer_result_fn(struct still_htimer *timer, int result, void *argument) STILL_NOEXCEPT;

/* Asks for the addition of a timer. -EAGAIN: all places for requests are taken; call still_htimer_process. -EPIPE: the target has stopped.
 * -EBUSY, -EOPNOTSUPP: as for still_htimer_add. On failure the timer is the caller's, and as it was. */
int still_htimer_async_add(struct still_htimer_mgr *target, struct still_htimer *timer, uint64_t time, uint64_t period,
                           still_htimer_fn *function, void *argument, uint32_t flags, still_htimer_result_fn *result_function,
                           void *result_argument) STILL_NOEXCEPT;

/* The arguments of still_htimer_async_add. */
struct still_htimer_request {
    struct still_htimer *timer;
    uint64_t time;
    uint64_t period;
    still_htimer_fn *function;
    void *argument;
    still_htimer_result_fn *result_function;
    void *result_argument;
    uint32_t flags;
};

/* Asks for many additions by one atomic operation. Returns how many, the first ones, it has asked for; the other timers are the caller's.
 * If it is none, the error of the first one. */
ssize_t still_htimer_async_add_burst(struct still_htimer_mgr *target, const struct still_htimer_request *requests, size_t count)
    STILL_NOEXCEPT;

/* Asks the thread that has the timer to cancel it. -ENOENT: it was never added. -EAGAIN, -EPIPE: as above. */
int still_htimer_async_cancel(struct still_htimer *timer, still_htimer_result_fn *result_function, void *result_argument) STILL_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
