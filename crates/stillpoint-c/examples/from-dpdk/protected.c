/*
 * routes.c with protected loads. A worker that is preempted holds up only one table. The control thread never waits.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <stillpoint.h>

enum { WORKERS = 3, ROUTES = 256, UPDATES = 200, PACKETS = 32 };

struct table {
    unsigned int version;
    unsigned int next_hop[ROUTES];
};

static struct still_domain *domain;
static struct table *current;
static int stopped;

static struct table *new_table(unsigned int version)
{
    struct table *table = malloc(sizeof *table);
    if (table == NULL)
        abort();
    table->version = version;
    for (unsigned int route = 0; route < ROUTES; route++)
        table->next_hop[route] = version + route;
    return table;
}

static void destroy(void *table, void *context)
{
    (void)context;
    free(table);
}

static void *work(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    unsigned long wrong = 0;

    (void)unused;
    if (reader == NULL)
        abort();
    while (!__atomic_load_n(&stopped, __ATOMIC_ACQUIRE)) {
        struct still_protected held = still_protect(reader, &current);
        struct table *table = held.object;

        for (unsigned int packet = 0; packet < PACKETS; packet++)
            wrong += table->next_hop[packet] != table->version + packet;
        still_release(held);
    }
    still_reader_free(reader);
    return (void *)wrong;
}

int main(void)
{
    pthread_t threads[WORKERS];
    struct still_reclaimer *reclaimer;
    unsigned long wrong = 0;

    domain = still_domain_new(NULL);
    reclaimer = domain != NULL ? still_reclaimer_new(domain, NULL) : NULL;
    if (reclaimer == NULL)
        return 1;
    current = new_table(0);
    for (unsigned int worker = 0; worker < WORKERS; worker++) {
        if (pthread_create(&threads[worker], NULL, work, NULL) != 0)
            return 1;
    }
    for (unsigned int version = 1; version <= UPDATES; version++) {
        struct table *old = still_exchange(&current, new_table(version));
        if (still_retire(reclaimer, old, sizeof *old, destroy, NULL) < 0) {
            fprintf(stderr, "%s\n", still_error());
            return 1;
        }
        still_poll(reclaimer, STILL_ALL);
    }
    __atomic_store_n(&stopped, 1, __ATOMIC_RELEASE);
    for (unsigned int worker = 0; worker < WORKERS; worker++) {
        void *result;
        pthread_join(threads[worker], &result);
        wrong += (unsigned long)result;
    }
    still_reclaimer_free(reclaimer);
    still_domain_free(domain);
    printf("%d updates, %lu wrong\n", UPDATES, wrong);
    free(current);
    return wrong != 0;
}
