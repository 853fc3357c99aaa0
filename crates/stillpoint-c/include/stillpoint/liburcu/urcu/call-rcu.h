/* The parts of call_rcu that all flavours share. */
#ifndef STILLPOINT_URCU_CALL_RCU_H
#define STILLPOINT_URCU_CALL_RCU_H

#include <pthread.h>
#include <stdlib.h>

#ifndef STILL_URCU_ALONE
#if __has_include(<urcu/wfcqueue.h>)
#include <urcu/wfcqueue.h>
#define STILL_URCU_HAS_WFCQUEUE_
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef STILL_URCU_HAS_WFCQUEUE_
struct cds_wfcq_node {
    struct cds_wfcq_node *next;
};
#endif

/* Two words, anywhere in an object of the program. They belong to the worker from call_rcu until the callback is called. */
struct rcu_head {
    struct cds_wfcq_node next;
    void (*func)(struct rcu_head *head);
};

/* A worker. */
struct call_rcu_data;

/* Flags of workers. They have no effect, because no worker polls. */
#define URCU_CALL_RCU_RT (1U << 0)
#define URCU_CALL_RCU_RUNNING (1U << 1)
#define URCU_CALL_RCU_STOP (1U << 2)
#define URCU_CALL_RCU_STOPPED (1U << 3)
#define URCU_CALL_RCU_PAUSE (1U << 4)
#define URCU_CALL_RCU_PAUSED (1U << 5)

#ifdef __cplusplus
}
static_assert(sizeof(struct rcu_head) == 2 * sizeof(void *), "two words");
#elif !defined(_Static_assert) /* in strict C99 it is a macro of glibc, which declares a function each time */
__extension__ _Static_assert(sizeof(struct rcu_head) == 2 * sizeof(void *), "two words");
#endif

#endif
