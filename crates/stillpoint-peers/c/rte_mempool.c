/*
 * DPDK's rte_mempool with its bucket, ring and stack drivers and with ours, in the memory of the environment abstraction layer.
 */
#include <rte_config.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_mempool.h>

#include "peer.h"

/* Our driver registers itself. In an object file of its own, which nothing calls, the linker would leave it out. */
#include "../../stillpoint-c/dpdk/mempool.c"

/* Returns NULL if there is not enough memory, or no driver of this name. */
struct rte_mempool *stillpoint_mempool_new(const char *name, const char *driver, unsigned count, unsigned size,
                                           unsigned cache)
{
    struct rte_mempool *pool = rte_mempool_create_empty(name, count, size, cache, 0, SOCKET_ID_ANY, 0);

    if (pool == NULL)
        return NULL;
    if (rte_mempool_set_ops_byname(pool, driver, NULL) != 0 || rte_mempool_populate_default(pool) < (int)count) {
        rte_mempool_free(pool);
        return NULL;
    }
    return pool;
}

void stillpoint_mempool_free(struct rte_mempool *pool)
{
    rte_mempool_free(pool);
}

/* Bytes of an object. */
unsigned stillpoint_mempool_object(struct rte_mempool *pool)
{
    return pool->elt_size;
}

/* Objects of a contiguous block; 0 if the driver has no contiguous blocks. */
unsigned stillpoint_mempool_block(struct rte_mempool *pool)
{
    struct rte_mempool_info info;

    memset(&info, 0, sizeof info);
    return rte_mempool_ops_get_info(pool, &info) == 0 ? info.contig_block_size : 0;
}

bool stillpoint_mempool_get(struct rte_mempool *pool, void **objects, unsigned count)
{
    return rte_mempool_get_bulk(pool, objects, count) == 0;
}

void stillpoint_mempool_put(struct rte_mempool *pool, void **objects, unsigned count)
{
    rte_mempool_put_bulk(pool, objects, count);
}

/* The same as in Rust, where the compiler unrolls the loop without a pragma and black_box uses the sum. */
static inline void read_each(void **objects, unsigned count)
{
    uint64_t sum = 0;

#pragma GCC unroll 8
    for (unsigned i = 0; i < count; i++)
        sum += *(volatile uint64_t *)objects[i];
    __asm__ volatile("" : : "r"(sum));
}

static inline void put_all(struct rte_mempool *pool, void **objects, unsigned keep, unsigned put)
{
    if (put == 1) {
        for (unsigned i = 0; i < keep; i++)
            rte_mempool_put(pool, objects[i]);
        return;
    }
    for (unsigned i = 0; i < keep; i += put)
        rte_mempool_put_bulk(pool, &objects[i], RTE_MIN(put, keep - i));
}

/* In each turn, gets an object, reads it, and puts it back. */
static bool single(struct rte_mempool *pool, uint64_t turns)
{
    for (uint64_t turn = 0; turn < turns; turn++) {
        void *object;
        if (rte_mempool_get(pool, &object) != 0)
            return false;
        read_each(&object, 1);
        rte_mempool_put(pool, object);
    }
    return true;
}

/* In each turn, gets `keep` objects, `get` in a call; reads each; and puts them back, `put` in a call. For single objects it uses the
 * calls for one object, in which the compiler knows the count. Returns false if the pool was exhausted. */
bool stillpoint_mempool_plain(struct rte_mempool *pool, void **objects, unsigned keep, unsigned get, unsigned put,
                              uint64_t turns)
{
    if (keep == 1 && get == 1 && put == 1)
        return single(pool, turns);
    for (uint64_t turn = 0; turn < turns; turn++) {
        for (unsigned i = 0; i < keep; i += get) {
            unsigned some = RTE_MIN(get, keep - i);
            if (rte_mempool_get_bulk(pool, &objects[i], some) != 0) {
                rte_mempool_put_bulk(pool, objects, i);
                return false;
            }
            read_each(&objects[i], some);
        }
        put_all(pool, objects, keep, put);
    }
    return true;
}

/* The same with `blocks` contiguous blocks. It gets `each` of them in a call, at most 64. */
bool stillpoint_mempool_blocks(struct rte_mempool *pool, void **objects, unsigned blocks, unsigned each, unsigned put,
                               uint64_t turns)
{
    unsigned block = stillpoint_mempool_block(pool);
    size_t stride = pool->header_size + pool->elt_size + pool->trailer_size;

    for (uint64_t turn = 0; turn < turns; turn++) {
        for (unsigned i = 0; i < blocks; i += each) {
            unsigned some = RTE_MIN(each, blocks - i);
            void *first[64];

            if (rte_mempool_get_contig_blocks(pool, first, some) != 0) {
                rte_mempool_put_bulk(pool, objects, i * block);
                return false;
            }
            for (unsigned b = 0; b < some; b++) {
                void **place = &objects[(i + b) * block];

                for (unsigned j = 0; j < block; j++)
                    place[j] = (char *)first[b] + j * stride;
                read_each(place, block);
            }
        }
        put_all(pool, objects, blocks * block, put);
    }
    return true;
}
