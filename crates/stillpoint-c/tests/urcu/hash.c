/* Tests a hash table of liburcu-cds over our flavours. */
#include "flavour.h"

#include <urcu/rculfhash.h>

struct entry {
    struct cds_lfht_node node;
    struct rcu_head head;
    unsigned long key;
    unsigned long value;
};

static int matches(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, struct entry, node)->key == *(const unsigned long *)key;
}

static int freed;

static void free_entry(struct rcu_head *head)
{
    struct entry *entry = caa_container_of(head, struct entry, head);
    entry->value = 0;
    free(entry);
    ADD(freed, 1);
}

static struct cds_lfht *table;
static int stop, found;

static void *looks_up(void *argument)
{
    (void)argument;
    rcu_register_thread();
    unsigned long key = 0;
    while (!LOAD(stop)) {
        struct cds_lfht_iter iterator;
        rcu_read_lock();
        cds_lfht_lookup(table, key * 2654435761u, matches, &key, &iterator);
        struct cds_lfht_node *node = cds_lfht_iter_get_node(&iterator);
        if (node != NULL) {
            CHECK(caa_container_of(node, struct entry, node)->value == key + 1);
            ADD(found, 1);
        }
        rcu_read_unlock();
        rcu_quiescent_state();
        key = (key + 1) % 1000;
    }
    rcu_unregister_thread();
    return NULL;
}

int main(void)
{
    rcu_register_thread();
    table = cds_lfht_new(1, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, NULL);
    CHECK(table != NULL);
    pthread_t readers[2] = {started(looks_up, NULL), started(looks_up, NULL)};
    int deleted = 0;
    for (int round = 0; round < 5 || LOAD(found) < 1000; round++) {
        for (unsigned long key = 0; key < 1000; key++) {
            struct entry *entry = (struct entry *)malloc(sizeof *entry);
            CHECK(entry != NULL);
            cds_lfht_node_init(&entry->node);
            entry->key = key;
            entry->value = key + 1;
            rcu_read_lock();
            CHECK(cds_lfht_add_unique(table, key * 2654435761u, matches, &entry->key, &entry->node) == &entry->node);
            rcu_read_unlock();
            rcu_quiescent_state();
        }
        for (unsigned long key = 0; key < 1000; key++) {
            struct cds_lfht_iter iterator;
            rcu_read_lock();
            cds_lfht_lookup(table, key * 2654435761u, matches, &key, &iterator);
            struct cds_lfht_node *node = cds_lfht_iter_get_node(&iterator);
            CHECK(node != NULL && cds_lfht_del(table, node) == 0);
            call_rcu(&caa_container_of(node, struct entry, node)->head, free_entry);
            rcu_read_unlock();
            rcu_quiescent_state();
            deleted++;
        }
    }
    STORE(stop, 1);
    rcu_thread_offline();
    for (int each = 0; each < 2; each++)
        CHECK(pthread_join(readers[each], NULL) == 0);
    rcu_thread_online();
    rcu_barrier();
    CHECK(LOAD(freed) == deleted);
    CHECK(cds_lfht_destroy(table, NULL) == 0);
    rcu_unregister_thread();
    return 0;
}
