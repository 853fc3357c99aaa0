/* Flavour qsbr of liburcu, over stillpoint: docs/guide/from-liburcu.md. */
#ifndef STILLPOINT_URCU_URCU_QSBR_H
#define STILLPOINT_URCU_URCU_QSBR_H

#include <pthread.h>
#include <stdlib.h>

#include <urcu/pointer.h>

#include "../../urcu.h"

#include <urcu/map/urcu-qsbr.h>

#if defined(RCU_DEBUG) && !defined(DEBUG_RCU)
#define DEBUG_RCU
#endif

#if defined(_LGPL_SOURCE) && !defined(STILL_URCU_TSAN_)

#include <urcu/static/urcu-qsbr.h>

#define urcu_qsbr_read_lock _urcu_qsbr_read_lock
#define urcu_qsbr_read_unlock _urcu_qsbr_read_unlock
#define urcu_qsbr_read_ongoing _urcu_qsbr_read_ongoing
#define urcu_qsbr_quiescent_state _urcu_qsbr_quiescent_state
#define urcu_qsbr_thread_offline _urcu_qsbr_thread_offline
#define urcu_qsbr_thread_online _urcu_qsbr_thread_online

#endif

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(_LGPL_SOURCE) || defined(STILL_URCU_TSAN_)
/* A thread that is online is in a read-side section. */
#ifdef DEBUG_RCU
int urcu_qsbr_read_ongoing(void) __asm__("still_urcu_qsbr_read_ongoing");

static inline void urcu_qsbr_read_lock(void)
{
    if (!urcu_qsbr_read_ongoing())
        abort();
}

static inline void urcu_qsbr_read_unlock(void)
{
    if (!urcu_qsbr_read_ongoing())
        abort();
}
#else
static inline void urcu_qsbr_read_lock(void)
{
}

static inline void urcu_qsbr_read_unlock(void)
{
}

int urcu_qsbr_read_ongoing(void) __asm__("still_urcu_qsbr_read_ongoing");
#endif
void urcu_qsbr_quiescent_state(void) __asm__("still_urcu_qsbr_quiescent_state");
void urcu_qsbr_thread_offline(void) __asm__("still_urcu_qsbr_thread_offline");
void urcu_qsbr_thread_online(void) __asm__("still_urcu_qsbr_thread_online");
#endif

void urcu_qsbr_register_thread(void) __asm__("still_urcu_qsbr_register_thread");
void urcu_qsbr_unregister_thread(void) __asm__("still_urcu_qsbr_unregister_thread");
void urcu_qsbr_init(void) __asm__("still_urcu_qsbr_init");
void urcu_qsbr_exit(void) __asm__("still_urcu_qsbr_exit");
void urcu_qsbr_synchronize_rcu(void) __asm__("still_urcu_qsbr_synchronize_rcu");

#ifdef __cplusplus
}
#endif

#define urcu_qsbr_dereference rcu_dereference
#define urcu_qsbr_cmpxchg_pointer rcu_cmpxchg_pointer
#define urcu_qsbr_xchg_pointer rcu_xchg_pointer
#define urcu_qsbr_set_pointer rcu_set_pointer

#include <urcu/call-rcu.h>
#include <urcu/defer.h>
#include <urcu/flavor.h>
#include <urcu/urcu-poll.h>

#ifdef __cplusplus
extern "C" {
#endif

/* call_rcu and its workers. */
void urcu_qsbr_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head)) __asm__("still_urcu_qsbr_call_rcu");
void urcu_qsbr_barrier(void) __asm__("still_urcu_qsbr_barrier");
struct call_rcu_data *urcu_qsbr_create_call_rcu_data(unsigned long flags, int cpu_affinity) __asm__("still_urcu_qsbr_create_call_rcu_data");
void urcu_qsbr_call_rcu_data_free(struct call_rcu_data *worker) __asm__("still_urcu_qsbr_call_rcu_data_free");
pthread_t urcu_qsbr_get_call_rcu_thread(struct call_rcu_data *worker) __asm__("still_urcu_qsbr_get_call_rcu_thread");
struct call_rcu_data *urcu_qsbr_get_default_call_rcu_data(void) __asm__("still_urcu_qsbr_get_default_call_rcu_data");
struct call_rcu_data *urcu_qsbr_get_cpu_call_rcu_data(int cpu) __asm__("still_urcu_qsbr_get_cpu_call_rcu_data");
struct call_rcu_data *urcu_qsbr_get_thread_call_rcu_data(void) __asm__("still_urcu_qsbr_get_thread_call_rcu_data");
struct call_rcu_data *urcu_qsbr_get_call_rcu_data(void) __asm__("still_urcu_qsbr_get_call_rcu_data");
void urcu_qsbr_set_thread_call_rcu_data(struct call_rcu_data *worker) __asm__("still_urcu_qsbr_set_thread_call_rcu_data");
int urcu_qsbr_set_cpu_call_rcu_data(int cpu, struct call_rcu_data *worker) __asm__("still_urcu_qsbr_set_cpu_call_rcu_data");
int urcu_qsbr_create_all_cpu_call_rcu_data(unsigned long flags) __asm__("still_urcu_qsbr_create_all_cpu_call_rcu_data");
void urcu_qsbr_free_all_cpu_call_rcu_data(void) __asm__("still_urcu_qsbr_free_all_cpu_call_rcu_data");
void urcu_qsbr_call_rcu_before_fork(void) __asm__("still_urcu_qsbr_call_rcu_before_fork");
void urcu_qsbr_call_rcu_after_fork_parent(void) __asm__("still_urcu_qsbr_call_rcu_after_fork_parent");
void urcu_qsbr_call_rcu_after_fork_child(void) __asm__("still_urcu_qsbr_call_rcu_after_fork_child");

/* Deferred calls. */
void urcu_qsbr_defer_rcu(void (*function)(void *argument), void *argument) __asm__("still_urcu_qsbr_defer_rcu");
int urcu_qsbr_defer_register_thread(void) __asm__("still_urcu_qsbr_defer_register_thread");
void urcu_qsbr_defer_unregister_thread(void) __asm__("still_urcu_qsbr_defer_unregister_thread");
void urcu_qsbr_defer_barrier(void) __asm__("still_urcu_qsbr_defer_barrier");
void urcu_qsbr_defer_barrier_thread(void) __asm__("still_urcu_qsbr_defer_barrier_thread");
void urcu_qsbr_defer_exit(void) __asm__("still_urcu_qsbr_defer_exit");

/* Polled grace periods. */
struct urcu_gp_poll_state urcu_qsbr_start_poll_synchronize_rcu(void) __asm__("still_urcu_qsbr_start_poll_synchronize_rcu");
bool urcu_qsbr_poll_state_synchronize_rcu(struct urcu_gp_poll_state state) __asm__("still_urcu_qsbr_poll_state_synchronize_rcu");

/* For liburcu's containers. */
extern const struct rcu_flavor_struct urcu_qsbr_flavor __asm__("still_urcu_qsbr_flavor");
void urcu_qsbr_register_rculfhash_atfork(struct urcu_atfork *atfork) __asm__("still_urcu_qsbr_register_rculfhash_atfork");
void urcu_qsbr_unregister_rculfhash_atfork(struct urcu_atfork *atfork) __asm__("still_urcu_qsbr_unregister_rculfhash_atfork");

#ifdef __cplusplus
}
#endif

#ifndef URCU_API_MAP
#include <urcu/map/clear.h>
#endif

#endif
