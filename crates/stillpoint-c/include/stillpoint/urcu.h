/*
 * stillpoint/urcu.h - the drop-in for liburcu
 *
 * Programs that were written for liburcu include liburcu's headers. The drop-in's versions are in stillpoint/liburcu, a directory
 * that comes before an installed liburcu on the compiler's path. A program includes this file only for two functions,
 * still_urcu_configure and still_urcu_domain. The guide is docs/guide/from-liburcu.md. Names that end in an underscore are for the
 * headers.
 *
 * C99 or C++11, GCC or Clang, Linux, 64 bits.
 */
#ifndef STILLPOINT_URCU_H
#define STILLPOINT_URCU_H

#include <stdint.h>

#include "thread.h"

#ifdef __cplusplus
extern "C" {
#endif

struct still_domain;
struct still_domain_options;
struct rcu_head;
struct urcu_atfork;
/* liburcu's struct call_rcu_data. */
struct call_rcu_data;

/* The flavours. Each has its own domain, which is made at the first use. */
#define STILL_URCU_MEMB 0u
#define STILL_URCU_MB 1u
#define STILL_URCU_QSBR 2u
#define STILL_URCU_BP 3u

/*
 * Sets the options of a flavour's domain: boosting, limits, a stall hook (struct still_domain_options, stillpoint.h). Call it from
 * one thread, before any other function of the flavour.
 *
 * Returns 0; -EBUSY if the flavour was used already; -EINVAL for a flavour that does not exist, and for STILL_MODE_ASYMMETRIC with
 * flavour mb; otherwise the errors of still_domain_new, negative.
 */
int still_urcu_configure(uint32_t flavour, const struct still_domain_options *options);

/*
 * A new handle of a flavour's domain, for the functions of stillpoint.h (still_domain_stats, still_domain_stall, ...). Free it with
 * still_domain_free. The call counts as a use of the flavour.
 *
 * Returns NULL with errno EINVAL for a flavour that does not exist.
 */
struct still_domain *still_urcu_domain(uint32_t flavour);

/* ---------------------------------------------------------------- readers */

/* Under ThreadSanitizer, readers call functions, which tell ThreadSanitizer what they order. */
#if defined(__SANITIZE_THREAD__)
#define STILL_URCU_TSAN_
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STILL_URCU_TSAN_
#endif
#endif

#define STILL_URCU_ATTENTION_ 8
#define STILL_URCU_FULL_FENCE_ 1u
#define STILL_URCU_UNREGISTERED_ 0x80000000u

void still_urcu_register_by_the_way_(uint32_t flavour);
void still_urcu_answer_(uint32_t flavour);
void still_urcu_register_(uint32_t flavour);
void still_urcu_unregister_(uint32_t flavour);
void still_urcu_offline_(void);
void still_urcu_online_(void);
void still_urcu_prepare_(uint32_t flavour);

/* Registers the calling thread, or brings its reader back, and begins a section. Implemented in C. */
void still_urcu_enter_(uint32_t flavour);

/* In a state outside sections: the rest is the token for which the reader vouches. */
#define STILL_URCU_IDLE_ 0x8000000000000000u

/* Begins a read-side section. Each acquire load of the token pairs with the read-modify-write of start, and each release store of the state
 * with the acquire load of check. The fences order that store before the loads of the section, and pair with the writer's heavy fence. */
static inline void still_urcu_lock_(struct still_urcu_reader_ *reader, uint32_t flavour)
{
    char *record = __atomic_load_n(&reader->record, __ATOMIC_RELAXED);
    uint64_t *state = (uint64_t *)(void *)record;
    uint64_t old = __atomic_load_n(state, __ATOMIC_RELAXED);
    /* In no section, not away (-1), and, in a signal handler, not on the way back (the least number). Sections are positive. */
    if (__builtin_expect((int64_t)(old - 1) < -2, 1)) {
        uintptr_t token = reader->token;
        if (__builtin_expect((token & STILL_URCU_FULL_FENCE_) == 0, 1)) {
            __atomic_store_n(state, __atomic_load_n((const uint64_t *)token, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        } else {
            const uint64_t *address = (const uint64_t *)(token - STILL_URCU_FULL_FENCE_);
            __atomic_store_n(state, __atomic_load_n(address, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
        }
        return;
    }
    uint32_t nested = __atomic_load_n(&reader->nested, __ATOMIC_RELAXED);
    if (__builtin_expect((int64_t)old > 0 && (nested & STILL_URCU_UNREGISTERED_) == 0, 1)) {
        __atomic_store_n(&reader->nested, nested + 1, __ATOMIC_RELAXED);
        /* This may be a signal handler that has interrupted the outermost lock before its fence. */
        if (__builtin_expect((reader->token & STILL_URCU_FULL_FENCE_) == 0, 1))
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        else
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
    } else {
        /* The thread is not registered, or has begun no section since it was. */
        still_urcu_enter_(flavour);
    }
}

/* Ends a read-side section. The release store pairs with the acquire load of check: the accesses of the section come before the free. The
 * acquire load of the token is as in still_urcu_lock_: what the thread loads from now on is newer than what was unlinked before. */
static inline void still_urcu_unlock_(struct still_urcu_reader_ *reader, uint32_t flavour)
{
    uint32_t nested = __atomic_load_n(&reader->nested, __ATOMIC_RELAXED);
    if (__builtin_expect(nested == 0, 1)) {
        char *record = __atomic_load_n(&reader->record, __ATOMIC_RELAXED);
        const uint64_t *token = (const uint64_t *)(reader->token & ~(uintptr_t)STILL_URCU_FULL_FENCE_);
        __atomic_store_n((uint64_t *)(void *)record, __atomic_load_n(token, __ATOMIC_ACQUIRE) | STILL_URCU_IDLE_, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (__builtin_expect(
                __atomic_load_n((uint32_t *)(void *)(record + STILL_URCU_ATTENTION_), __ATOMIC_RELAXED) != 0, 0))
            still_urcu_answer_(flavour);
    } else if ((nested & STILL_URCU_UNREGISTERED_) == 0) {
        __atomic_store_n(&reader->nested, nested - 1, __ATOMIC_RELAXED);
    }
}

/* Whether the thread is in a read-side section, or, in qsbr, online. */
static inline int still_urcu_ongoing_(const struct still_urcu_reader_ *reader)
{
    const char *record = __atomic_load_n(&reader->record, __ATOMIC_RELAXED);
    return (int64_t)__atomic_load_n((const uint64_t *)(const void *)record, __ATOMIC_RELAXED) > 0 &&
           (__atomic_load_n(&reader->nested, __ATOMIC_RELAXED) & STILL_URCU_UNREGISTERED_) == 0;
}

/* Reports a quiescent state. Brings the thread online if it is offline. The acquire load pairs with the read-modify-write of start, and the
 * release store with the acquire load of check. */
static inline void still_urcu_quiescent_(struct still_urcu_reader_ *reader)
{
    uint64_t token = __atomic_load_n((const uint64_t *)reader->token, __ATOMIC_ACQUIRE);
    if (__builtin_expect(token == reader->seen, 1))
        return;
    if (reader->seen == 0) {
        still_urcu_online_();
        return;
    }
    reader->seen = token;
    __atomic_store_n((uint64_t *)(void *)reader->record, token, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(
            __atomic_load_n((uint32_t *)(void *)(reader->record + STILL_URCU_ATTENTION_), __ATOMIC_RELAXED) != 0, 0))
        still_urcu_answer_(STILL_URCU_QSBR);
}

/* ---------------------------------------------------------------- called by the functions of all flavours */

void still_urcu_synchronize_(uint32_t flavour);
uint64_t still_urcu_start_(uint32_t flavour);
int still_urcu_check_(uint32_t flavour, uint64_t number);

void still_urcu_call_(uint32_t flavour, struct rcu_head *head, void (*function)(struct rcu_head *head));
void still_urcu_barrier_(uint32_t flavour);
struct call_rcu_data *still_urcu_worker_new_(uint32_t flavour, uint64_t flags, int cpu);
void still_urcu_worker_free_(uint32_t flavour, struct call_rcu_data *worker);
uint64_t still_urcu_worker_thread_(struct call_rcu_data *worker);
struct call_rcu_data *still_urcu_worker_default_(uint32_t flavour);
struct call_rcu_data *still_urcu_worker_of_cpu_(uint32_t flavour, int cpu);
struct call_rcu_data *still_urcu_worker_of_thread_(uint32_t flavour);
struct call_rcu_data *still_urcu_worker_(uint32_t flavour);
void still_urcu_set_worker_of_thread_(uint32_t flavour, struct call_rcu_data *worker);
int still_urcu_set_worker_of_cpu_(uint32_t flavour, int cpu, struct call_rcu_data *worker);
int still_urcu_workers_new_(uint32_t flavour, uint64_t flags);
void still_urcu_workers_free_(uint32_t flavour);

void still_urcu_before_fork_(uint32_t flavour);
void still_urcu_after_fork_parent_(uint32_t flavour);
void still_urcu_after_fork_child_(uint32_t flavour);
void still_urcu_forget_reset_(uint32_t flavour);
void still_urcu_reset_after_fork_(uint32_t flavour);
void still_urcu_register_atfork_(uint32_t flavour, struct urcu_atfork *atfork);
void still_urcu_unregister_atfork_(uint32_t flavour, struct urcu_atfork *atfork);

void still_urcu_defer_(uint32_t flavour, void (*function)(void *argument), void *argument);
int still_urcu_defer_register_(uint32_t flavour);
void still_urcu_defer_unregister_(uint32_t flavour);
void still_urcu_defer_barrier_(uint32_t flavour);

/* These are written in C, because stable Rust has neither thread-local variables with C linkage nor weak references. */
void still_urcu_acquires_(void);
void still_urcu_releases_(void);
void still_urcu_bp_prepare_(void) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif
