/*
 * DPDK's rte_hash with lock-free readers and several writers. rte_rcu_qsbr frees the positions of deleted keys. The table lies in the
 * memory of the environment abstraction layer, which is initialised once in a process.
 */
#include <rte_config.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_rcu_qsbr.h>

#include "peer.h"

/*
 * The most deleted keys whose positions may wait for readers. DPDK's default is as many as the table has entries. 65,536 are enough for
 * what one thread deletes while a reader is preempted for some ten milliseconds. If the queue is full, a position is lost.
 */
#define DEFER_QUEUE 65536

struct stillpoint_hash {
    struct rte_hash *hash;
    struct rte_rcu_qsbr *qsbr;
    uint32_t key_len;
};

/* Returns false if the layer cannot be initialised with these arguments. */
bool stillpoint_eal_init(int count, char **arguments)
{
    return rte_eal_init(count, arguments) >= 0;
}

uint64_t stillpoint_eal_bytes(void)
{
    struct rte_malloc_socket_stats stats;

    return rte_malloc_get_socket_stats(0, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}

void stillpoint_hash_free(struct stillpoint_hash *table)
{
    if (table == NULL)
        return;
    rte_hash_free(table->hash);
    free(table->qsbr);
    free(table);
}

/* Returns NULL if there is not enough memory. */
struct stillpoint_hash *stillpoint_hash_new(const char *name, uint32_t entries, uint32_t key_len)
{
    struct rte_hash_parameters parameters = {
        .name = name,
        .entries = entries,
        .key_len = key_len,
        .hash_func = rte_hash_crc,
        .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF | RTE_HASH_EXTRA_FLAGS_MULTI_WRITER_ADD,
    };
    struct stillpoint_hash *table = calloc(1, sizeof *table);
    struct rte_hash_rcu_config config = {
        .mode = RTE_HASH_QSBR_MODE_DQ,
        .dq_size = entries < DEFER_QUEUE ? entries : DEFER_QUEUE,
    };
    /* A thread's id in the variable is its number in DPDK. */
    size_t size = RTE_ALIGN_CEIL(rte_rcu_qsbr_get_memsize(RTE_MAX_LCORE), RTE_CACHE_LINE_SIZE);

    if (table == NULL)
        return NULL;
    table->key_len = key_len;
    table->hash = rte_hash_create(&parameters);
    table->qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, size);
    config.v = table->qsbr;
    if (table->hash == NULL || table->qsbr == NULL || rte_rcu_qsbr_init(table->qsbr, RTE_MAX_LCORE) != 0 ||
        rte_hash_rcu_qsbr_add(table->hash, &config) != 0) {
        stillpoint_hash_free(table);
        return NULL;
    }
    return table;
}

/*
 * Gives the calling thread a number in DPDK, if it has none. Writers need one: free positions are kept for each number. Returns whether
 * the thread got a number now, which `stillpoint_thread_leave` must give back.
 */
bool stillpoint_thread_join(void)
{
    return rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0;
}

void stillpoint_thread_leave(void)
{
    rte_thread_unregister();
}

bool stillpoint_hash_insert(struct stillpoint_hash *table, const void *key, uint64_t value)
{
    return rte_hash_add_key_data(table->hash, key, (void *)(uintptr_t)value) == 0;
}

bool stillpoint_hash_remove(struct stillpoint_hash *table, const void *key)
{
    return rte_hash_del_key(table->hash, key) >= 0;
}

/* Registers the calling thread as a reader, online. The thread must have a number in DPDK. */
void stillpoint_hash_reader_begin(struct stillpoint_hash *table)
{
    (void)rte_rcu_qsbr_thread_register(table->qsbr, rte_lcore_id());
    rte_rcu_qsbr_thread_online(table->qsbr, rte_lcore_id());
}

void stillpoint_hash_reader_end(struct stillpoint_hash *table)
{
    rte_rcu_qsbr_thread_offline(table->qsbr, rte_lcore_id());
    (void)rte_rcu_qsbr_thread_unregister(table->qsbr, rte_lcore_id());
}

/* Looks up `count` keys one after the other, and reports a quiescent state after each. Returns the sum of their values. */
uint64_t stillpoint_hash_lookup(struct stillpoint_hash *table, const char *keys, size_t count)
{
    const unsigned int thread = rte_lcore_id();
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        void *data;
        if (rte_hash_lookup_data(table->hash, keys + i * table->key_len, &data) >= 0)
            sum += (uintptr_t)data;
        rte_rcu_qsbr_quiescent(table->qsbr, thread);
    }
    return sum;
}

/* The same in bursts of 32 keys. */
uint64_t stillpoint_hash_lookup_bulk(struct stillpoint_hash *table, const char *keys, size_t count)
{
    const unsigned int thread = rte_lcore_id();
    uint64_t sum = 0;

    for (size_t i = 0; i + 32 <= count; i += 32) {
        const void *burst[32];
        void *data[32];
        uint64_t hits = 0;
        for (int j = 0; j < 32; j++)
            burst[j] = keys + (i + j) * table->key_len;
        rte_hash_lookup_bulk_data(table->hash, burst, 32, &hits, data);
        for (int j = 0; j < 32; j++)
            if (hits >> j & 1)
                sum += (uintptr_t)data[j];
        rte_rcu_qsbr_quiescent(table->qsbr, thread);
    }
    return sum;
}

/*
 * The same table for the experiment `reclaim`, with numbers as keys and elements as data. With a defer queue, the table itself frees
 * deleted elements, at later deletes. Without one, its user has to store the positions and tokens, and free the elements.
 */
struct stillpoint_map {
    struct rte_hash *hash;
    struct rte_rcu_qsbr *qsbr;
    void (*free_element)(struct element *element);
    /* How many elements the defer queue has freed; only the writer changes it. */
    uint64_t freed;
};

static void free_data(void *map, void *data)
{
    struct stillpoint_map *this = map;

    if (data != NULL) {
        this->free_element(data);
        this->freed++;
    }
}

void stillpoint_map_free(struct stillpoint_map *map)
{
    if (map == NULL)
        return;
    rte_hash_free(map->hash);
    free(map->qsbr);
    free(map);
}

/* Returns NULL if there is not enough memory. With two threads, a thread other than the writer gives positions back. */
struct stillpoint_map *stillpoint_map_new(const char *name, uint32_t entries, uint32_t readers, bool defer_queue,
                                          bool two_threads, void (*free_element)(struct element *element))
{
    struct rte_hash_parameters parameters = {
        .name = name,
        .entries = entries,
        .key_len = sizeof(uint64_t),
        .hash_func = rte_hash_crc,
        .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF |
                      (two_threads ? RTE_HASH_EXTRA_FLAGS_MULTI_WRITER_ADD : 0),
    };
    struct stillpoint_map *map = calloc(1, sizeof *map);
    struct rte_hash_rcu_config config = { .mode = RTE_HASH_QSBR_MODE_DQ, .free_key_data_func = free_data };
    size_t size = RTE_ALIGN_CEIL(rte_rcu_qsbr_get_memsize(readers), RTE_CACHE_LINE_SIZE);

    if (map == NULL)
        return NULL;
    map->free_element = free_element;
    map->hash = rte_hash_create(&parameters);
    map->qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, size);
    config.v = map->qsbr;
    config.key_data_ptr = map;
    if (map->hash == NULL || map->qsbr == NULL || rte_rcu_qsbr_init(map->qsbr, readers) != 0 ||
        (defer_queue && rte_hash_rcu_qsbr_add(map->hash, &config) != 0)) {
        stillpoint_map_free(map);
        return NULL;
    }
    return map;
}

struct rte_rcu_qsbr *stillpoint_map_qsbr(struct stillpoint_map *map)
{
    return map->qsbr;
}

uint64_t stillpoint_map_freed(struct stillpoint_map *map)
{
    return map->freed;
}

bool stillpoint_map_add(struct stillpoint_map *map, uint64_t key, struct element *element)
{
    return rte_hash_add_key_data(map->hash, &key, element) == 0;
}

/* The element of a key; NULL if there is none. */
struct element *stillpoint_map_find(struct stillpoint_map *map, uint64_t key)
{
    void *data;

    return rte_hash_lookup_data(map->hash, &key, &data) >= 0 ? data : NULL;
}

/* Deletes a key. Returns its position, which must be given back unless there is a defer queue; negative if the key was not there. */
int32_t stillpoint_map_delete(struct stillpoint_map *map, uint64_t key)
{
    return rte_hash_del_key(map->hash, &key);
}

void stillpoint_map_free_position(struct stillpoint_map *map, int32_t position)
{
    (void)rte_hash_free_key_with_position(map->hash, position);
}

/* The loop of a registered reader, as in dpdk.c. */
struct read_outcome stillpoint_map_read(struct stillpoint_map *map, uint32_t id, const struct read_job *job)
{
    struct rte_rcu_qsbr *qsbr = map->qsbr;
    struct read_outcome outcome;

    rte_rcu_qsbr_thread_online(qsbr, id);
    READ_TABLE(job, &outcome, stillpoint_map_find(map, index_), (void)0, rte_rcu_qsbr_quiescent(qsbr, id),
               rte_rcu_qsbr_thread_offline(qsbr, id), rte_rcu_qsbr_thread_online(qsbr, id));
    rte_rcu_qsbr_thread_offline(qsbr, id);
    return outcome;
}
