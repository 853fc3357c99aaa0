/* A flavour as a table of functions, for liburcu's containers: 14 functions in liburcu 0.13, 16 since 0.14. */
#ifndef STILLPOINT_URCU_FLAVOR_H
#define STILLPOINT_URCU_FLAVOR_H

#include <urcu/urcu-poll.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rcu_head;

/* The hooks that a hash table runs around a fork. */
struct urcu_atfork {
    void (*before_fork)(void *priv);
    void (*after_fork_parent)(void *priv);
    void (*after_fork_child)(void *priv);
    void *priv;
};

struct rcu_flavor_struct {
    void (*read_lock)(void);
    void (*read_unlock)(void);
    int (*read_ongoing)(void);
    void (*read_quiescent_state)(void);
    void (*update_call_rcu)(struct rcu_head *head, void (*func)(struct rcu_head *head));
    void (*update_synchronize_rcu)(void);
    void (*update_defer_rcu)(void (*function)(void *argument), void *argument);

    void (*thread_offline)(void);
    void (*thread_online)(void);
    void (*register_thread)(void);
    void (*unregister_thread)(void);

    void (*barrier)(void);

    void (*register_rculfhash_atfork)(struct urcu_atfork *atfork);
    void (*unregister_rculfhash_atfork)(struct urcu_atfork *atfork);

    struct urcu_gp_poll_state (*update_start_poll_synchronize_rcu)(void);
    bool (*update_poll_state_synchronize_rcu)(struct urcu_gp_poll_state state);
};

#ifdef __cplusplus
}
static_assert(sizeof(struct rcu_flavor_struct) == 16 * sizeof(void *), "16 functions");
#elif !defined(_Static_assert) /* in strict C99 it is a macro of glibc, which declares a function each time */
__extension__ _Static_assert(sizeof(struct urcu_atfork) == 4 * sizeof(void *), "4 words");
__extension__ _Static_assert(sizeof(struct rcu_flavor_struct) == 16 * sizeof(void *), "16 functions");
#endif

/* The table of functions for the names without a flavour. */
#define DEFINE_RCU_FLAVOR(x)                                                 \
    const struct rcu_flavor_struct x = {rcu_read_lock,                       \
                                        rcu_read_unlock,                     \
                                        rcu_read_ongoing,                    \
                                        rcu_quiescent_state,                 \
                                        call_rcu,                            \
                                        synchronize_rcu,                     \
                                        defer_rcu,                           \
                                        rcu_thread_offline,                  \
                                        rcu_thread_online,                   \
                                        rcu_register_thread,                 \
                                        rcu_unregister_thread,               \
                                        rcu_barrier,                         \
                                        urcu_register_rculfhash_atfork,      \
                                        urcu_unregister_rculfhash_atfork,    \
                                        start_poll_synchronize_rcu,          \
                                        poll_state_synchronize_rcu}

#endif
