/* The driver "stillpoint" of rte_mempool. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <stillpoint/mempool.h>

#include "check.h"

enum { LCORES = 4, STRANGERS = 2, TURNS = 2000, MOST = 256 };

static struct rte_mempool *mp;
static cpu_set_t all_cpus;
static unsigned block, blocks_got, ready;

static struct rte_mempool *empty(unsigned count, unsigned bytes, unsigned cache, unsigned flags, struct still_mempool_config *config)
{
    struct rte_mempool *made = rte_mempool_create_empty("pool", count, bytes, cache, 0, SOCKET_ID_ANY, flags);

    CHECK(made != NULL);
    CHECK(rte_mempool_set_ops_byname(made, "stillpoint", config) == 0);
    return made;
}

static void clear(struct rte_mempool *pool, void *unused, void *object, unsigned index)
{
    (void)unused;
    (void)index;
    memset(object, 0, pool->elt_size);
}

static struct rte_mempool *made(unsigned count, unsigned bytes, unsigned cache, unsigned flags)
{
    struct rte_mempool *pool = empty(count, bytes, cache, flags, NULL);

    CHECK(rte_mempool_populate_default(pool) == (int)count);
    CHECK(rte_mempool_obj_iter(pool, clear, NULL) == count);
    return pool;
}

static size_t stride_of(const struct rte_mempool *pool)
{
    return pool->header_size + pool->elt_size + pool->trailer_size;
}

static unsigned block_of(struct rte_mempool *pool)
{
    struct rte_mempool_info info;

    CHECK(rte_mempool_ops_get_info(pool, &info) == 0 && info.contig_block_size > 0);
    return info.contig_block_size;
}

/* Each object has the word of who has it. */
static void work(uint64_t me)
{
    void *objects[MOST];
    unsigned seed = (unsigned)me * 7919;

    for (int turn = 0; turn < TURNS; turn++) {
        unsigned count = 1 + (unsigned)rand_r(&seed) % 100;
        void *start;

        if (block <= MOST && turn % 4 == 0 && rte_mempool_get_contig_blocks(mp, &start, 1) == 0) {
            COUNT(blocks_got);
            count = block;
            for (unsigned i = 0; i < count; i++)
                objects[i] = (char *)start + i * stride_of(mp);
        } else if (rte_mempool_get_bulk(mp, objects, count) != 0) {
            continue;
        }
        for (unsigned i = 0; i < count; i++) {
            CHECK(rte_mempool_from_obj(objects[i]) == mp);
            CHECK(__atomic_exchange_n((uint64_t *)objects[i], me, __ATOMIC_ACQ_REL) == 0);
        }
        for (unsigned i = 0; i < count; i++)
            CHECK(__atomic_exchange_n((uint64_t *)objects[i], 0, __ATOMIC_ACQ_REL) == me);
        for (unsigned i = 0; i < count;) {
            unsigned some = 1 + (unsigned)rand_r(&seed) % 40;

            some = RTE_MIN(some, count - i);
            rte_mempool_put_bulk(mp, objects + i, some);
            i += some;
        }
    }
}

static int on_lcore(void *unused)
{
    (void)unused;
    work(1 + rte_lcore_id());
    return 0;
}

/* One of them gets the number of an lcore, and gives it back. */
static void *on_stranger(void *number)
{
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof all_cpus, &all_cpus) == 0);
    if (number != NULL)
        CHECK(rte_thread_register() == 0);
    work(1000 + (uintptr_t)number);
    if (number != NULL)
        rte_thread_unregister();
    return NULL;
}

static void owners(unsigned count, unsigned bytes, unsigned cache, unsigned flags)
{
    pthread_t strangers[STRANGERS];

    mp = made(count, bytes, cache, flags);
    block = block_of(mp);
    CHECK(rte_eal_mp_remote_launch(on_lcore, NULL, SKIP_MAIN) == 0);
    for (uintptr_t i = 0; i < STRANGERS; i++)
        strangers[i] = started(on_stranger, (void *)i);
    rte_eal_mp_wait_lcore();
    for (int i = 0; i < STRANGERS; i++)
        joined(strangers[i]);
    CHECK(rte_mempool_full(mp) && rte_mempool_avail_count(mp) == count);
    rte_mempool_free(mp);
}

static int by_address(const void *one, const void *other)
{
    uintptr_t a = *(const uintptr_t *)one, b = *(const uintptr_t *)other;

    return a < b ? -1 : a > b;
}

/* All objects can be got, each of them once, and no more. */
static void to_the_last(struct rte_mempool *pool)
{
    unsigned count = pool->populated_size;
    void **objects = malloc((count + 1) * sizeof *objects);
    void *more;

    CHECK(objects != NULL);
    CHECK(rte_mempool_get_bulk(pool, objects, count + 1) != 0);
    CHECK(rte_mempool_avail_count(pool) == count);
    CHECK(rte_mempool_get_bulk(pool, objects, count) == 0);
    CHECK(rte_mempool_get(pool, &more) == -ENOBUFS && rte_mempool_empty(pool));
    qsort(objects, count, sizeof *objects, by_address);
    for (unsigned i = 0; i < count; i++) {
        CHECK(i == 0 || (char *)objects[i] - (char *)objects[i - 1] >= (ptrdiff_t)stride_of(pool));
        CHECK(rte_mempool_from_obj(objects[i]) == pool);
        memset(objects[i], 0xee, pool->elt_size);
    }
    rte_mempool_put_bulk(pool, objects, count);
    CHECK(rte_mempool_avail_count(pool) == count);
    free(objects);
}

static void exhaustion(void)
{
    static const unsigned counts[] = { 1, 31, 32, 511, 513, 3001 }, sizes[] = { 8, 100, 2048, 4096, 100000 };

    for (unsigned c = 0; c < RTE_DIM(counts); c++)
        for (unsigned s = 0; s < RTE_DIM(sizes) && counts[c] * (uint64_t)sizes[s] < 50 << 20; s++)
            for (unsigned flags = 0; flags <= RTE_MEMPOOL_F_NO_CACHE_ALIGN; flags += RTE_MEMPOOL_F_NO_CACHE_ALIGN) {
                struct rte_mempool *pool = made(counts[c], sizes[s], 0, flags);

                to_the_last(pool);
                rte_mempool_free(pool);
            }
}

/* Memory that DPDK did not provide. */
static void *area(size_t bytes)
{
    void *start = aligned_alloc(64, bytes);

    CHECK(start != NULL);
    return start;
}

static void release(struct rte_mempool_memhdr *unused, void *start)
{
    (void)unused;
    free(start);
}

/* Runs that follow each other are one chunk, others are not, and short ones have no blocks. */
static void chunks(void)
{
    enum { BYTES = 1984, BUCKET = 64 << 10 }; /* 31 in a bucket */
    struct rte_mempool *pool = empty(31 * 8 + 10, BYTES, 0, 0, NULL);
    char *memory = area(4 * BUCKET), *alone = area(3 * BUCKET), *low = area(16 << 10), *again = area(2 * BUCKET);
    void *starts[8], *start, *objects[31 * 8 + 10];
    unsigned got = 0;

    CHECK(rte_mempool_populate_iova(pool, memory, RTE_BAD_IOVA, 2 * BUCKET, NULL, NULL) == 62);
    CHECK(rte_mempool_populate_iova(pool, memory + 2 * BUCKET, RTE_BAD_IOVA, 2 * BUCKET, release, memory) == 62);
    CHECK(rte_mempool_populate_iova(pool, low, RTE_BAD_IOVA, 16 << 10, release, low) == 4);
    CHECK(rte_mempool_populate_iova(pool, alone, RTE_BAD_IOVA, 3 * BUCKET, release, alone) == 93);
    CHECK(rte_mempool_avail_count(pool) == 221);
    CHECK(rte_mempool_get_contig_blocks(pool, starts, 8) == -ENOBUFS);
    CHECK(rte_mempool_avail_count(pool) == 221);
    CHECK(rte_mempool_get_contig_blocks(pool, starts, 7) == 0);
    CHECK(rte_mempool_get_contig_blocks(pool, &start, 1) == -ENOBUFS);
    CHECK(rte_mempool_avail_count(pool) == 4);
    for (unsigned b = 0; b < 7; b++)
        for (unsigned i = 0; i < 31; i++) {
            objects[got] = (char *)starts[b] + i * stride_of(pool);
            CHECK(rte_mempool_from_obj(objects[got++]) == pool);
        }
    rte_mempool_put_bulk(pool, objects, got);
    to_the_last(pool);

    /* The mempool was in use, and gets more memory: the last objects, which do not fill it. */
    CHECK(rte_mempool_populate_iova(pool, again, RTE_BAD_IOVA, 2 * BUCKET, release, again) == 37);
    CHECK(rte_mempool_avail_count(pool) == 31 * 8 + 10);
    to_the_last(pool);
    CHECK(rte_mempool_get_contig_blocks(pool, starts, 8) == 0);
    rte_mempool_free(pool);
}

/* Gets and puts back all objects, and keeps none. */
static int churns(void *unused)
{
    void *objects[32 * 93];

    (void)unused;
    CHECK(rte_mempool_get_bulk(mp, objects, 32 * 93) == 0);
    rte_mempool_put_bulk(mp, objects, 32 * 93);
    return 0;
}

/* Whatever one lcore has done before, another one gets all objects: chunks of few objects have no caches. */
static void many_chunks(void)
{
    enum { BYTES = 1984, BUCKET = 64 << 10 };

    mp = empty(32 * 93, BYTES, 0, 0, NULL);
    for (int i = 0; i < 32; i++) {
        char *memory = area(3 * BUCKET);

        CHECK(rte_mempool_populate_iova(mp, memory, RTE_BAD_IOVA, 3 * BUCKET, release, memory) == 93);
    }
    for (int turn = 0; turn < 2; turn++) {
        CHECK(rte_eal_remote_launch(churns, NULL, 1 + (unsigned)turn) == 0);
        rte_eal_mp_wait_lcore();
        to_the_last(mp);
    }
    rte_mempool_free(mp);
}

static int gets_at_once(void *unused)
{
    void *objects[10];

    (void)unused;
    COUNT(ready);
    UNTIL(LOAD(ready) == LCORES);
    CHECK(rte_mempool_get_bulk(mp, objects, 10) == 0);
    rte_mempool_put_bulk(mp, objects, 10);
    return 0;
}

static void first_use(void)
{
    for (int turn = 0; turn < 20; turn++) {
        mp = made(1000, 64, 0, 0);
        ready = 0;
        CHECK(rte_eal_mp_remote_launch(gets_at_once, NULL, SKIP_MAIN) == 0);
        gets_at_once(NULL);
        rte_eal_mp_wait_lcore();
        CHECK(rte_mempool_full(mp));
        rte_mempool_free(mp);
    }
}

static void *frees(void *pool)
{
    rte_mempool_free(pool);
    return NULL;
}

static void ends(void)
{
    struct rte_mempool *pool = made(1000, 64, 0, 0);

    rte_mempool_free(pool); /* before the first use */
    pool = empty(1000, 64, 0, 0, NULL);
    struct rte_mempool_info info;
    CHECK(rte_mempool_avail_count(pool) == 0 && rte_mempool_ops_get_info(pool, &info) == -ENOTSUP);
    rte_mempool_free(pool); /* without memory */
    pool = made(1000, 64, 0, 0);
    to_the_last(pool);
    joined(started(frees, pool)); /* on a thread that never used it */

    /* There is no memory for all objects: none is left, and the next attempt begins from the start. */
    pool = empty(1 << 20, 1024, 0, 0, NULL);
    CHECK(rte_mempool_populate_default(pool) < 0 && pool->populated_size == 0);
    char *memory = area(1 << 20);
    CHECK(rte_mempool_populate_iova(pool, memory, RTE_BAD_IOVA, 1 << 20, release, memory) == 16 * (int)block_of(pool));
    to_the_last(pool);
    rte_mempool_free(pool);
}

static void configurations(void)
{
    struct still_mempool_config config = STILL_MEMPOOL_CONFIG_INIT;
    struct rte_mempool *pool;
    void *object;

    config.bucket_bytes = 128 << 10;
    config.cache = STILL_ALL;
    pool = empty(1000, 1984, 0, 0, &config);
    CHECK(rte_mempool_populate_default(pool) == 1000 && block_of(pool) == 62);
    to_the_last(pool);
    rte_mempool_free(pool);

    config.bucket_bytes = 0; /* large objects have large buckets */
    pool = empty(10, 100000, 0, 0, &config);
    CHECK(rte_mempool_populate_default(pool) == 10);
    to_the_last(pool);
    rte_mempool_free(pool);

    pool = empty(UINT32_MAX, 1984, 0, 0, NULL); /* numbers of 32 bits do not overflow */
    char *memory = area(1 << 20);
    CHECK(rte_mempool_populate_iova(pool, memory, RTE_BAD_IOVA, 1 << 20, release, memory) == 16 * 31);
    to_the_last(pool);
    rte_mempool_free(pool);

    config.bucket_bytes = 100000; /* no power of two */
    pool = empty(1000, 1984, 0, 0, &config);
    CHECK(rte_mempool_populate_default(pool) == -EINVAL);
    rte_mempool_free(pool);
    config.size = 0;
    pool = empty(1000, 1984, 0, 0, &config);
    CHECK(rte_mempool_populate_default(pool) == -EINVAL);
    rte_mempool_free(pool);

    pool = made(1000, 64, 0, 0);
    object = pool;
    CHECK(rte_mempool_ops_enqueue_bulk(pool, &object, 1) == -EINVAL); /* no object of it */
    rte_mempool_free(pool);
}

/* The argument is the file of the driver, if it is not a part of the program. */
int main(int count, char **paths)
{
    char program[] = "mempool", huge[] = "--no-huge", pci[] = "--no-pci", memory[] = "-m", megabytes[] = "256",
         shared[] = "--no-shconf", telemetry[] = "--no-telemetry", cores[] = "--lcores", sets[5000] = "(0-3)@(", driver[] = "-d";
    char *arguments[] = { program, huge, pci, memory, megabytes, shared, telemetry, cores, sets, driver, paths[count - 1], NULL };

    CHECK(sched_getaffinity(0, sizeof all_cpus, &all_cpus) == 0);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all_cpus))
            sprintf(sets + strlen(sets), "%u,", cpu);
    sets[strlen(sets) - 1] = ')';
    CHECK(rte_eal_init(count == 1 ? 9 : 11, arguments) >= 0);
    CHECK(rte_lcore_count() == LCORES);

    exhaustion();
    for (unsigned cache = 0; cache <= 256; cache += 256)
        for (unsigned flags = 0; flags <= RTE_MEMPOOL_F_NO_CACHE_ALIGN; flags += RTE_MEMPOOL_F_NO_CACHE_ALIGN)
            owners(3001, flags != 0 ? 100 : 2048, cache, flags);
    owners(400, 2048, 0, 0);
    CHECK(LOAD(blocks_got) > 0);
    chunks();
    many_chunks();
    first_use();
    ends();
    configurations();
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}
