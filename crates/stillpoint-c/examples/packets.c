/* One thread takes packet buffers from a pool, and another thread puts them back.
 *
 *     cc packets.c $(pkg-config --cflags --libs stillpoint) -pthread && ./a.out
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stillpoint.h"

enum { BUFFERS = 4096, BYTES = 2048, BURST = 32, BURSTS = 20000, PLACES = 64 };

static struct still_pool *pool;
/* A ring of bursts, for one sender and one receiver. */
static void *ring[PLACES][BURST];
static unsigned head, tail;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, still_error());
    exit(1);
}

static void *receive(void *unused)
{
    struct still_local *local = still_local_new(pool);
    if (local == NULL)
        fail("no local");
    for (unsigned burst = 0; burst < BURSTS; burst++) {
        while (__atomic_load_n(&head, __ATOMIC_ACQUIRE) == burst)
            sched_yield();
        void **buffers = ring[burst % PLACES];
        for (unsigned i = 0; i < BURST; i++)
            if (*(unsigned *)buffers[i] != burst)
                abort();
        if (still_local_put_many(local, buffers, BURST) < 0)
            fail("not put back");
        __atomic_store_n(&tail, burst + 1, __ATOMIC_RELEASE);
    }
    still_local_free(local);
    return unused;
}

int main(void)
{
    pool = still_pool_new(BUFFERS, BYTES, 64, NULL);
    struct still_local *local = pool == NULL ? NULL : still_local_new(pool);
    if (local == NULL)
        fail("no pool");
    pthread_t thread;
    if (pthread_create(&thread, NULL, receive, NULL) != 0)
        abort();
    unsigned long waits = 0;
    for (unsigned burst = 0; burst < BURSTS; burst++) {
        while (burst - __atomic_load_n(&tail, __ATOMIC_ACQUIRE) == PLACES)
            sched_yield();
        void **buffers = ring[burst % PLACES];
        while (still_local_get_many(local, buffers, BURST) < 0) { /* all of them or none */
            waits++;
            sched_yield();
        }
        for (unsigned i = 0; i < BURST; i++)
            memcpy(buffers[i], &burst, sizeof burst);
        __atomic_store_n(&head, burst + 1, __ATOMIC_RELEASE);
    }
    pthread_join(thread, NULL);
    still_local_free(local);
    struct still_pool_info info = { .size = sizeof info };
    if (still_pool_stats(pool, &info) < 0)
        fail("no numbers");
    printf("%u buffers went round, %lu waits, %zu of %zu are free\n", BURST * BURSTS, waits, info.available, info.capacity);
    return still_pool_free(pool) == 0 ? 0 : 1; /* 0: no buffer is in use */
}
