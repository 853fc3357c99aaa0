/*
 * The functions of the drop-in for liburcu under the names of each flavour, the thread-local variables that inline code reads, and tables
 * of the functions. The implementation is in Rust.
 *
 * All functions are weak: a program that is linked with the static library may define its own.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "stillpoint/urcu.h"
#include "stillpoint/liburcu/urcu/flavor.h"

/* reader.rs asserts the same numbers. */
#define AT(field, place) _Static_assert(offsetof(struct still_urcu_reader_, field) == (place), #field)
AT(record, 0);
AT(token, 8);
AT(seen, 16);
AT(nested, 24);
AT(frame, 28);
AT(seat, 32);
AT(worker, 40);
AT(ring, 48);
_Static_assert(sizeof(struct still_urcu_reader_) == 56, "size");

#define WEAK __attribute__((weak))
/* For the library itself. If another copy of the library is in the process, the loader may take its variables for all exported ones. */
#define HERE __attribute__((visibility("hidden")))

/* The initial values, for a thread that is not registered. Nothing writes to them. The state is that of a reader that is away: inline code
 * looks at it before `nested`, and a signal handler that registers the thread in between must not make it look like that of a section. */
struct still_urcu_nobody_ {
    uint64_t state;
    uint32_t attention;
    uint32_t reserved;
};
HERE const struct still_urcu_nobody_ still_urcu_nobody_ = {UINT64_MAX, 0, 0};
#define NOBODY                                                                                             \
    {(char *)(uintptr_t)&still_urcu_nobody_, (uintptr_t)&still_urcu_nobody_.state, UINT64_MAX, STILL_URCU_UNREGISTERED_, 0, NULL, NULL, NULL}

/* A thread that the library does not know. */
HERE const struct still_thread_ still_thread_of_nobody_ = {
    {NOBODY, NOBODY, NOBODY, NOBODY},
    {NULL, NULL, 0, 0, NULL},
};

__thread struct still_thread_ *still_thread_ = (struct still_thread_ *)(uintptr_t)&still_thread_of_nobody_;

extern __thread struct still_thread_ *still_thread_here_ HERE __attribute__((alias("still_thread_"), tls_model("initial-exec")));
/* Rust cannot name a thread-local variable that is defined here. */
HERE struct still_thread_ **still_thread_place_(void);
struct still_thread_ **still_thread_place_(void)
{
    return &still_thread_here_;
}

#define still_thread_ still_thread_here_

/* ThreadSanitizer does not see code that is compiled without it: Rust, and this file. These calls tell it that a reader's accesses come
 * before the end of a wait for it, and that a push comes before its callback. */
void __tsan_acquire(void *address) WEAK;
void __tsan_release(void *address) WEAK;
static char sync_point;

void still_urcu_acquires_(void)
{
    if (__tsan_acquire)
        __tsan_acquire(&sync_point);
}

void still_urcu_releases_(void)
{
    if (__builtin_expect(__tsan_release == NULL, 1))
        return;
    __tsan_release(&sync_point);
    /* When a grace period is over, also within a turn of callbacks, the engine tells ThreadSanitizer that it acquires each record. The call
     * below is the release for that. */
    for (uint32_t flavour = STILL_URCU_MEMB; flavour <= STILL_URCU_BP; flavour++) {
        char *record = still_thread_->urcu[flavour].record;
        if (record != (const char *)&still_urcu_nobody_)
            __tsan_release(record);
    }
}

void still_urcu_enter_(uint32_t flavour)
{
    still_urcu_register_by_the_way_(flavour);
    still_urcu_lock_(&still_thread_->urcu[flavour], flavour);
}

void still_urcu_bp_prepare_(void)
{
    still_urcu_prepare_(STILL_URCU_BP);
}

_Static_assert(sizeof(unsigned long) == sizeof(uint64_t), "the number of a poll state has room for a token");
_Static_assert(sizeof(pthread_t) == sizeof(uint64_t), "Rust holds a thread as a number of 64 bits");

/* The functions that all flavours have. */
#define FLAVOUR(f, F)                                                                                      \
    WEAK int still_urcu_##f##_read_ongoing(void)                                                           \
    {                                                                                                      \
        return still_urcu_ongoing_(&still_thread_->urcu[F]);                                             \
    }                                                                                                      \
    WEAK void still_urcu_##f##_register_thread(void)                                                       \
    {                                                                                                      \
        still_urcu_register_(F);                                                                           \
    }                                                                                                      \
    WEAK void still_urcu_##f##_init(void)                                                                  \
    {                                                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_exit(void)                                                                  \
    {                                                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_synchronize_rcu(void)                                                       \
    {                                                                                                      \
        still_urcu_synchronize_(F);                                                                        \
    }                                                                                                      \
    WEAK struct urcu_gp_poll_state still_urcu_##f##_start_poll_synchronize_rcu(void)                       \
    {                                                                                                      \
        struct urcu_gp_poll_state state = {still_urcu_start_(F)};                                          \
        return state;                                                                                      \
    }                                                                                                      \
    WEAK bool still_urcu_##f##_poll_state_synchronize_rcu(struct urcu_gp_poll_state state)                 \
    {                                                                                                      \
        return still_urcu_check_(F, state.grace_period_id) != 0;                                           \
    }                                                                                                      \
    WEAK void still_urcu_##f##_call_rcu(struct rcu_head *head, void (*function)(struct rcu_head *))        \
    {                                                                                                      \
        still_urcu_call_(F, head, function);                                                               \
    }                                                                                                      \
    WEAK void still_urcu_##f##_barrier(void)                                                               \
    {                                                                                                      \
        still_urcu_barrier_(F);                                                                            \
    }                                                                                                      \
    WEAK struct call_rcu_data *still_urcu_##f##_create_call_rcu_data(unsigned long flags, int cpu)         \
    {                                                                                                      \
        return still_urcu_worker_new_(F, flags, cpu);                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_call_rcu_data_free(struct call_rcu_data *worker)                            \
    {                                                                                                      \
        still_urcu_worker_free_(F, worker);                                                                \
    }                                                                                                      \
    WEAK pthread_t still_urcu_##f##_get_call_rcu_thread(struct call_rcu_data *worker)                      \
    {                                                                                                      \
        return still_urcu_worker_thread_(worker);                                                          \
    }                                                                                                      \
    WEAK struct call_rcu_data *still_urcu_##f##_get_default_call_rcu_data(void)                            \
    {                                                                                                      \
        return still_urcu_worker_default_(F);                                                              \
    }                                                                                                      \
    WEAK struct call_rcu_data *still_urcu_##f##_get_cpu_call_rcu_data(int cpu)                             \
    {                                                                                                      \
        return still_urcu_worker_of_cpu_(F, cpu);                                                          \
    }                                                                                                      \
    WEAK struct call_rcu_data *still_urcu_##f##_get_thread_call_rcu_data(void)                             \
    {                                                                                                      \
        return still_urcu_worker_of_thread_(F);                                                            \
    }                                                                                                      \
    WEAK struct call_rcu_data *still_urcu_##f##_get_call_rcu_data(void)                                    \
    {                                                                                                      \
        return still_urcu_worker_(F);                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_set_thread_call_rcu_data(struct call_rcu_data *worker)                      \
    {                                                                                                      \
        still_urcu_set_worker_of_thread_(F, worker);                                                       \
    }                                                                                                      \
    WEAK int still_urcu_##f##_set_cpu_call_rcu_data(int cpu, struct call_rcu_data *worker)                 \
    {                                                                                                      \
        return still_urcu_set_worker_of_cpu_(F, cpu, worker);                                              \
    }                                                                                                      \
    WEAK int still_urcu_##f##_create_all_cpu_call_rcu_data(unsigned long flags)                            \
    {                                                                                                      \
        return still_urcu_workers_new_(F, flags);                                                          \
    }                                                                                                      \
    WEAK void still_urcu_##f##_free_all_cpu_call_rcu_data(void)                                            \
    {                                                                                                      \
        still_urcu_workers_free_(F);                                                                       \
    }                                                                                                      \
    WEAK void still_urcu_##f##_call_rcu_before_fork(void)                                                  \
    {                                                                                                      \
        still_urcu_before_fork_(F);                                                                        \
    }                                                                                                      \
    WEAK void still_urcu_##f##_call_rcu_after_fork_parent(void)                                            \
    {                                                                                                      \
        still_urcu_after_fork_parent_(F);                                                                  \
    }                                                                                                      \
    WEAK void still_urcu_##f##_call_rcu_after_fork_child(void)                                             \
    {                                                                                                      \
        still_urcu_after_fork_child_(F);                                                                   \
    }                                                                                                      \
    WEAK void still_urcu_##f##_register_rculfhash_atfork(struct urcu_atfork *atfork)                       \
    {                                                                                                      \
        still_urcu_register_atfork_(F, atfork);                                                            \
    }                                                                                                      \
    WEAK void still_urcu_##f##_unregister_rculfhash_atfork(struct urcu_atfork *atfork)                     \
    {                                                                                                      \
        still_urcu_unregister_atfork_(F, atfork);                                                          \
    }                                                                                                      \
    WEAK void still_urcu_##f##_defer_rcu(void (*function)(void *), void *argument)                         \
    {                                                                                                      \
        still_urcu_defer_(F, function, argument);                                                          \
    }                                                                                                      \
    WEAK int still_urcu_##f##_defer_register_thread(void)                                                  \
    {                                                                                                      \
        return still_urcu_defer_register_(F);                                                              \
    }                                                                                                      \
    WEAK void still_urcu_##f##_defer_unregister_thread(void)                                               \
    {                                                                                                      \
        still_urcu_defer_unregister_(F);                                                                   \
    }                                                                                                      \
    WEAK void still_urcu_##f##_defer_barrier(void)                                                         \
    {                                                                                                      \
        still_urcu_defer_barrier_(F);                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_defer_barrier_thread(void)                                                  \
    {                                                                                                      \
        still_urcu_defer_barrier_(F);                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_defer_exit(void)                                                            \
    {                                                                                                      \
    }                                                                                                      \
    WEAK const struct rcu_flavor_struct still_urcu_##f##_flavor = {                                        \
        still_urcu_##f##_read_lock,                                                                        \
        still_urcu_##f##_read_unlock,                                                                      \
        still_urcu_##f##_read_ongoing,                                                                     \
        still_urcu_##f##_quiescent_state,                                                                  \
        still_urcu_##f##_call_rcu,                                                                         \
        still_urcu_##f##_synchronize_rcu,                                                                  \
        still_urcu_##f##_defer_rcu,                                                                        \
        still_urcu_##f##_thread_offline,                                                                   \
        still_urcu_##f##_thread_online,                                                                    \
        still_urcu_##f##_register_thread,                                                                  \
        still_urcu_##f##_unregister_thread,                                                                \
        still_urcu_##f##_barrier,                                                                          \
        still_urcu_##f##_register_rculfhash_atfork,                                                        \
        still_urcu_##f##_unregister_rculfhash_atfork,                                                      \
        still_urcu_##f##_start_poll_synchronize_rcu,                                                       \
        still_urcu_##f##_poll_state_synchronize_rcu,                                                       \
    };

/* The functions of flavours with read-side sections. */
#define SECTIONS(f, F)                                                                                     \
    WEAK void still_urcu_##f##_read_lock(void)                                                             \
    {                                                                                                      \
        still_urcu_lock_(&still_thread_->urcu[F], F);                                                    \
    }                                                                                                      \
    WEAK void still_urcu_##f##_read_unlock(void)                                                           \
    {                                                                                                      \
        if (__builtin_expect(__tsan_release != NULL, 0))                                                   \
            still_urcu_releases_();                                                                        \
        still_urcu_unlock_(&still_thread_->urcu[F], F);                                                  \
    }                                                                                                      \
    WEAK void still_urcu_##f##_quiescent_state(void)                                                       \
    {                                                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_thread_offline(void)                                                        \
    {                                                                                                      \
    }                                                                                                      \
    WEAK void still_urcu_##f##_thread_online(void)                                                         \
    {                                                                                                      \
    }

SECTIONS(memb, STILL_URCU_MEMB)
SECTIONS(mb, STILL_URCU_MB)
SECTIONS(bp, STILL_URCU_BP)

WEAK void still_urcu_qsbr_read_lock(void)
{
}
WEAK void still_urcu_qsbr_read_unlock(void)
{
}
WEAK void still_urcu_qsbr_quiescent_state(void)
{
    if (__builtin_expect(__tsan_release != NULL, 0))
        still_urcu_releases_();
    still_urcu_quiescent_(&still_thread_->urcu[STILL_URCU_QSBR]);
}
WEAK void still_urcu_qsbr_thread_offline(void)
{
    still_urcu_offline_();
}
WEAK void still_urcu_qsbr_thread_online(void)
{
    still_urcu_online_();
}

#define UNREGISTER(f, F)                                                                                   \
    WEAK void still_urcu_##f##_unregister_thread(void)                                                     \
    {                                                                                                      \
        still_urcu_unregister_(F);                                                                         \
    }

UNREGISTER(memb, STILL_URCU_MEMB)
UNREGISTER(mb, STILL_URCU_MB)
UNREGISTER(qsbr, STILL_URCU_QSBR)
/* As liburcu's: a library that works with any flavour calls this within the program's sections. */
WEAK void still_urcu_bp_unregister_thread(void)
{
}

FLAVOUR(memb, STILL_URCU_MEMB)
FLAVOUR(mb, STILL_URCU_MB)
FLAVOUR(qsbr, STILL_URCU_QSBR)
FLAVOUR(bp, STILL_URCU_BP)

/* The hooks that only bp has. */
WEAK void still_urcu_bp_before_fork(void)
{
    still_urcu_forget_reset_(STILL_URCU_BP);
}
WEAK void still_urcu_bp_after_fork_parent(void)
{
}
WEAK void still_urcu_bp_after_fork_child(void)
{
    still_urcu_reset_after_fork_(STILL_URCU_BP);
}
