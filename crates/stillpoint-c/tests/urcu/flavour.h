/* Shared by the tests of the drop-in: the flavour, a check, threads, and objects that detect early frees. */
#ifndef FLAVOUR_H
#define FLAVOUR_H

#if defined(FLAVOUR_MB)
#define RCU_MB
#include <urcu.h>
#define FLAVOUR STILL_URCU_MB
#elif defined(FLAVOUR_QSBR)
#include <urcu-qsbr.h>
#define FLAVOUR STILL_URCU_QSBR
#elif defined(FLAVOUR_BP)
#include <urcu-bp.h>
#define FLAVOUR STILL_URCU_BP
#else
#include <urcu.h>
#define FLAVOUR STILL_URCU_MEMB
#endif

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stillpoint.h"

#ifdef FLAVOUR_QSBR
#define IS_QSBR 1
#else
#define IS_QSBR 0
#endif

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);      \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)

/* Waits for an event that another thread brings about. */
#define AWAIT(condition)                                                                                   \
    do {                                                                                                   \
        while (!(condition))                                                                               \
            sched_yield();                                                                                 \
    } while (0)

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)
#define ADD(x, v) __atomic_add_fetch(&(x), (v), __ATOMIC_SEQ_CST)

static inline pthread_t started(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    return thread;
}

/* A thread that is in a read-side section, or online, from `inside` to `leave`. */
struct holder {
    int inside, leave;
    pthread_t thread;
};

static inline void *holds(void *argument)
{
    struct holder *holder = (struct holder *)argument;
    rcu_register_thread();
    rcu_read_lock();
    STORE(holder->inside, 1);
    AWAIT(LOAD(holder->leave));
    STORE(holder->inside, 0);
    rcu_read_unlock();
    rcu_quiescent_state();
    rcu_unregister_thread();
    return NULL;
}

static inline void hold(struct holder *holder)
{
    memset(holder, 0, sizeof *holder);
    holder->thread = started(holds, holder);
    AWAIT(LOAD(holder->inside));
}

static inline void let_go(struct holder *holder)
{
    STORE(holder->leave, 1);
    CHECK(pthread_join(holder->thread, NULL) == 0);
}

#endif
