/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The parts of DPDK that rte_rcu_qsbr.h and rte_timer.h need: DPDK's headers if they are on the compiler's path, otherwise a small
 * replacement. Programs must not include this file.
 */
#ifndef STILL_RTE_H
#define STILL_RTE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if UINTPTR_MAX != UINT64_MAX || !defined(__linux__)
#error "the drop-in headers for DPDK are for 64-bit Linux"
#endif

#if defined(__has_include)
#if __has_include(<rte_config.h>) && __has_include(<rte_common.h>) && !defined(STILL_RTE_WITHOUT_DPDK)
#define STILL_RTE_DPDK 1
#endif
#endif

#ifdef STILL_RTE_DPDK

#include <rte_config.h>

#include <rte_common.h>
#include <rte_compat.h>
#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_debug.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_pause.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The address of this thread's rte_errno, for the library. The function is weak, so the program has one copy of it. */
__attribute__((__weak__, __visibility__("default"))) int *still_rte_errno_(void);
__attribute__((__weak__, __visibility__("default"))) int *still_rte_errno_(void)
{
    return &rte_errno;
}

#ifdef __cplusplus
}
#endif

#else

#include <errno.h>
#include <time.h>

#define RTE_CACHE_LINE_SIZE 64
#define RTE_MAX_LCORE 128
#define LCORE_ID_ANY UINT32_MAX
#define rte_errno errno

#ifndef __rte_cache_aligned
#define __rte_cache_aligned __attribute__((__aligned__(RTE_CACHE_LINE_SIZE)))
#endif
#ifndef __rte_always_inline
#define __rte_always_inline inline __attribute__((__always_inline__))
#endif
#ifndef __rte_unused
#define __rte_unused __attribute__((__unused__))
#endif
#ifndef __rte_experimental
#define __rte_experimental
#endif
#ifndef likely
#define likely(condition) __builtin_expect(!!(condition), 1)
#endif
#ifndef unlikely
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#endif
#ifndef RTE_ASSERT
#define RTE_ASSERT(condition) ((void)0)
#endif
#define RTE_ALIGN_MUL_CEIL(value, multiple) (((value) + (multiple) - 1) / (multiple) * (multiple))
#define RTE_ALIGN(value, power) (((value) + (power) - 1) & ~((power) - 1))

#ifdef __cplusplus
extern "C" {
#endif

/* The lcore of the calling thread, below RTE_MAX_LCORE; LCORE_ID_ANY until it is set. */
unsigned int still_rte_lcore_id(void);
/* Sets the lcore of the calling thread. No other thread may have it. 0; -EINVAL: lcore is neither below RTE_MAX_LCORE nor LCORE_ID_ANY;
 * -ENOMEM. */
int still_rte_lcore_set(unsigned int lcore);
/* The next lcore after `lcore` that a living thread has; if there is none, the first such lcore; LCORE_ID_ANY if no thread has an lcore. */
unsigned int still_rte_lcore_next(unsigned int lcore);

static inline unsigned int rte_lcore_id(void)
{
    return still_rte_lcore_id();
}

static inline unsigned int rte_get_next_lcore(unsigned int lcore, int skip_main, int wrap)
{
    (void)skip_main;
    (void)wrap;
    return still_rte_lcore_next(lcore);
}

/* Nanoseconds of the monotonic clock. */
static inline uint64_t rte_get_timer_cycles(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline uint64_t rte_get_timer_hz(void)
{
    return UINT64_C(1000000000);
}

static inline void rte_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

#ifdef __cplusplus
}
#endif

#endif /* STILL_RTE_DPDK */

#endif
