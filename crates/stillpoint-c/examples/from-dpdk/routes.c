/*
 * Workers look up routes, and a control thread replaces the table, with DPDK's quiescent states.
 *
 * The program compiles with DPDK's rte_rcu_qsbr.h and with stillpoint's.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_rcu_qsbr.h>

enum { WORKERS = 3, ROUTES = 256, UPDATES = 200, PACKETS = 32 };

struct table {
    unsigned int version;
    unsigned int next_hop[ROUTES];
};

static struct rte_rcu_qsbr *readers;
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

static void *work(void *argument)
{
    unsigned int id = *(unsigned int *)argument;
    unsigned long wrong = 0;

    rte_rcu_qsbr_thread_register(readers, id);
    rte_rcu_qsbr_thread_online(readers, id);
    while (!__atomic_load_n(&stopped, __ATOMIC_ACQUIRE)) {
        for (unsigned int packet = 0; packet < PACKETS; packet++) {
            struct table *table = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
            wrong += table->next_hop[packet] != table->version + packet;
        }
        rte_rcu_qsbr_quiescent(readers, id);
    }
    rte_rcu_qsbr_thread_offline(readers, id);
    rte_rcu_qsbr_thread_unregister(readers, id);
    return (void *)wrong;
}

int main(void)
{
    pthread_t threads[WORKERS];
    unsigned int ids[WORKERS];
    unsigned long wrong = 0;

    readers = aligned_alloc(64, rte_rcu_qsbr_get_memsize(WORKERS));
    if (readers == NULL || rte_rcu_qsbr_init(readers, WORKERS) != 0)
        return 1;
    current = new_table(0);
    for (unsigned int worker = 0; worker < WORKERS; worker++) {
        ids[worker] = worker;
        if (pthread_create(&threads[worker], NULL, work, &ids[worker]) != 0)
            return 1;
    }
    for (unsigned int version = 1; version <= UPDATES; version++) {
        struct table *old = __atomic_exchange_n(&current, new_table(version), __ATOMIC_ACQ_REL);
        rte_rcu_qsbr_synchronize(readers, RTE_QSBR_THRID_INVALID);
        free(old);
    }
    __atomic_store_n(&stopped, 1, __ATOMIC_RELEASE);
    for (unsigned int worker = 0; worker < WORKERS; worker++) {
        void *result;
        pthread_join(threads[worker], &result);
        wrong += (unsigned long)result;
    }
    printf("%d updates, %lu wrong\n", UPDATES, wrong);
    free(current);
    free(readers);
    return wrong != 0;
}
