/* Eight threads read a configuration while another thread replaces it.
 *
 *     cc configuration.c $(pkg-config --cflags --libs stillpoint) -pthread && ./a.out
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "stillpoint.h"

struct configuration {
    int version;
    int limit; /* always twice the version, so that a reader would notice half a change */
};

static struct still_domain *domain;
static struct configuration *current;
static int stop;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, still_error());
    exit(1);
}

static void destroy(void *configuration, void *context)
{
    (void)context;
    free(configuration);
}

static struct configuration *make(int version)
{
    struct configuration *made = malloc(sizeof *made);
    if (made == NULL)
        abort();
    *made = (struct configuration){ version, 2 * version };
    return made;
}

static void *serve(void *served)
{
    struct still_reader *reader = still_reader_new(domain);
    if (reader == NULL)
        fail("no reader");
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        /* Holds the object until still_release. A thread that is preempted here holds up only this object. */
        struct still_protected held = still_protect(reader, &current);
        const struct configuration *configuration = held.object;
        if (configuration->limit != 2 * configuration->version)
            abort();
        ++*(unsigned long *)served;
        still_release(held);
    }
    still_reader_free(reader);
    return NULL;
}

int main(void)
{
    enum { THREADS = 8, VERSIONS = 10000 };
    domain = still_domain_new(NULL);
    struct still_reclaimer *reclaimer = domain == NULL ? NULL : still_reclaimer_new(domain, NULL);
    if (reclaimer == NULL)
        fail("no domain");
    still_store(&current, make(0));

    pthread_t threads[THREADS];
    unsigned long served[THREADS] = { 0 };
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, serve, &served[i]) != 0)
            abort();
    for (int version = 1; version <= VERSIONS; version++) {
        struct configuration *old = still_exchange(&current, make(version));
        if (still_retire(reclaimer, old, sizeof *old, destroy, NULL) < 0)
            fail("not retired"); /* `old` would still be ours */
        still_poll(reclaimer, STILL_ALL);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    unsigned long all = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all += served[i];
    }
    if (still_flush(reclaimer, STILL_FOREVER) < 0)
        fail("not flushed");
    struct still_stats stats = { .size = sizeof stats };
    if (still_domain_stats(domain, &stats) < 0)
        fail("no numbers");
    printf("%d versions, %lu reads, %llu freed, %llu pending\n", VERSIONS, all, (unsigned long long)stats.freed,
           (unsigned long long)stats.pending);
    free(current);
    still_reclaimer_free(reclaimer);
    still_domain_free(domain);
    return stats.freed == VERSIONS && stats.pending == 0 ? 0 : 1;
}
