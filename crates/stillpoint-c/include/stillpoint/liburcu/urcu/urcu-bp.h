/* Flavour bp of liburcu, over stillpoint: docs/guide/from-liburcu.md. */
#ifndef STILLPOINT_URCU_URCU_BP_H
#define STILLPOINT_URCU_URCU_BP_H

#include <pthread.h>
#include <stdlib.h>

#include <urcu/pointer.h>

#include "../../urcu.h"

#include <urcu/map/urcu-bp.h>

/* Runs when the program starts, because a thread may become a reader in a signal handler, where nothing may be allocated. */
static void __attribute__((constructor)) still_urcu_bp_prepares_(void)
{
    /* The function is missing in a program that defines all functions itself and does not link the library. */
    if (still_urcu_bp_prepare_ != 0)
        still_urcu_bp_prepare_();
}

#if defined(_LGPL_SOURCE) && !defined(STILL_URCU_TSAN_)

#include <urcu/static/urcu-bp.h>

#define urcu_bp_read_lock _urcu_bp_read_lock
#define urcu_bp_read_unlock _urcu_bp_read_unlock
#define urcu_bp_read_ongoing _urcu_bp_read_ongoing

#endif

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(_LGPL_SOURCE) || defined(STILL_URCU_TSAN_)
void urcu_bp_read_lock(void) __asm__("still_urcu_bp_read_lock");
void urcu_bp_read_unlock(void) __asm__("still_urcu_bp_read_unlock");
int urcu_bp_read_ongoing(void) __asm__("still_urcu_bp_read_ongoing");
#endif

static inline void urcu_bp_quiescent_state(void)
{
}

static inline void urcu_bp_thread_offline(void)
{
}

static inline void urcu_bp_thread_online(void)
{
}

void urcu_bp_register_thread(void) __asm__("still_urcu_bp_register_thread");

/* A thread is unregistered when it ends. */
static inline void urcu_bp_unregister_thread(void)
{
}

static inline void urcu_bp_init(void)
{
}

static inline void urcu_bp_exit(void)
{
}

void urcu_bp_before_fork(void) __asm__("still_urcu_bp_before_fork");
void urcu_bp_after_fork_parent(void) __asm__("still_urcu_bp_after_fork_parent");
void urcu_bp_after_fork_child(void) __asm__("still_urcu_bp_after_fork_child");
void urcu_bp_synchronize_rcu(void) __asm__("still_urcu_bp_synchronize_rcu");

#ifdef __cplusplus
}
#endif

#define urcu_bp_dereference rcu_dereference
#define urcu_bp_cmpxchg_pointer rcu_cmpxchg_pointer
#define urcu_bp_xchg_pointer rcu_xchg_pointer
#define urcu_bp_set_pointer rcu_set_pointer

#include <urcu/call-rcu.h>
#include <urcu/defer.h>
#include <urcu/flavor.h>
#include <urcu/urcu-poll.h>

#ifdef __cplusplus
extern "C" {
#endif

/* call_rcu and its workers. */
void urcu_bp_call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head)) __asm__("still_urcu_bp_call_rcu");
void urcu_bp_barrier(void) __asm__("still_urcu_bp_barrier");
struct call_rcu_data *urcu_bp_create_call_rcu_data(unsigned long flags, int cpu_affinity) __asm__("still_urcu_bp_create_call_rcu_data");
void urcu_bp_call_rcu_data_free(struct call_rcu_data *worker) __asm__("still_urcu_bp_call_rcu_data_free");
pthread_t urcu_bp_get_call_rcu_thread(struct call_rcu_data *worker) __asm__("still_urcu_bp_get_call_rcu_thread");
struct call_rcu_data *urcu_bp_get_default_call_rcu_data(void) __asm__("still_urcu_bp_get_default_call_rcu_data");
struct call_rcu_data *urcu_bp_get_cpu_call_rcu_data(int cpu) __asm__("still_urcu_bp_get_cpu_call_rcu_data");
struct call_rcu_data *urcu_bp_get_thread_call_rcu_data(void) __asm__("still_urcu_bp_get_thread_call_rcu_data");
struct call_rcu_data *urcu_bp_get_call_rcu_data(void) __asm__("still_urcu_bp_get_call_rcu_data");
void urcu_bp_set_thread_call_rcu_data(struct call_rcu_data *worker) __asm__("still_urcu_bp_set_thread_call_rcu_data");
int urcu_bp_set_cpu_call_rcu_data(int cpu, struct call_rcu_data *worker) __asm__("still_urcu_bp_set_cpu_call_rcu_data");
int urcu_bp_create_all_cpu_call_rcu_data(unsigned long flags) __asm__("still_urcu_bp_create_all_cpu_call_rcu_data");
void urcu_bp_free_all_cpu_call_rcu_data(void) __asm__("still_urcu_bp_free_all_cpu_call_rcu_data");
void urcu_bp_call_rcu_before_fork(void) __asm__("still_urcu_bp_call_rcu_before_fork");
void urcu_bp_call_rcu_after_fork_parent(void) __asm__("still_urcu_bp_call_rcu_after_fork_parent");
void urcu_bp_call_rcu_after_fork_child(void) __asm__("still_urcu_bp_call_rcu_after_fork_child");

/* Deferred calls. */
void urcu_bp_defer_rcu(void (*function)(void *argument), void *argument) __asm__("still_urcu_bp_defer_rcu");
int urcu_bp_defer_register_thread(void) __asm__("still_urcu_bp_defer_register_thread");
void urcu_bp_defer_unregister_thread(void) __asm__("still_urcu_bp_defer_unregister_thread");
void urcu_bp_defer_barrier(void) __asm__("still_urcu_bp_defer_barrier");
void urcu_bp_defer_barrier_thread(void) __asm__("still_urcu_bp_defer_barrier_thread");
void urcu_bp_defer_exit(void) __asm__("still_urcu_bp_defer_exit");

/* Polled grace periods. */
struct urcu_gp_poll_state urcu_bp_start_poll_synchronize_rcu(void) __asm__("still_urcu_bp_start_poll_synchronize_rcu");
bool urcu_bp_poll_state_synchronize_rcu(struct urcu_gp_poll_state state) __asm__("still_urcu_bp_poll_state_synchronize_rcu");

/* For liburcu's containers. */
extern const struct rcu_flavor_struct urcu_bp_flavor __asm__("still_urcu_bp_flavor");
void urcu_bp_register_rculfhash_atfork(struct urcu_atfork *atfork) __asm__("still_urcu_bp_register_rculfhash_atfork");
void urcu_bp_unregister_rculfhash_atfork(struct urcu_atfork *atfork) __asm__("still_urcu_bp_unregister_rculfhash_atfork");

#ifdef __cplusplus
}
#endif

#ifndef URCU_API_MAP
#include <urcu/map/clear.h>
#endif

#endif
