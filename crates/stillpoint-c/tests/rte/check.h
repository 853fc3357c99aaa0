/* Shared by the tests of the drop-in headers. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint.h>
#include <string.h>

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                                       \
        }                                                                                                  \
    } while (0)

/* The last failure's reason contains these words. */
#define SAYS(words)                                                                                        \
    do {                                                                                                   \
        if (strstr(still_error(), words) == NULL) {                                                        \
            fprintf(stderr, "%s:%d: not \"%s\": %s\n", __FILE__, __LINE__, words, still_error());           \
            abort();                                                                                       \
        }                                                                                                  \
    } while (0)

/* Waits for an event. */
#define UNTIL(condition)                                                                                   \
    do {                                                                                                   \
        while (!(condition))                                                                               \
            sched_yield();                                                                                 \
    } while (0)

static inline pthread_t started(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    return thread;
}

static inline void joined(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)
#define COUNT(place) __atomic_add_fetch(&(place), 1, __ATOMIC_ACQ_REL)

#endif
