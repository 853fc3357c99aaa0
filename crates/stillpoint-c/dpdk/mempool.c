/*
 * A driver of rte_mempool named "stillpoint": objects come from pools of stillpoint, in the memory that DPDK provides.
 *
 * A *chunk* is a run of that memory, and has a pool of its own, an engine, whose objects are the mempool's: the engine's memory begins
 * one header after the chunk, and its stride is header + element + trailer. So no list of objects exists besides the engine's bits, and
 * the engine writes to no object. DPDK calls populate() once for each physically contiguous run; runs that follow each other in virtual
 * memory become one chunk. The engine of a chunk is made when the mempool is first used, since no more may follow then. Memory is added
 * while no other thread uses the mempool, as with any driver; so chunks change only then.
 *
 * Each lcore, registered threads included, has a local of each engine, by its number. All other threads share one more, under a lock.
 */
#include <rte_config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

#include <stillpoint.h>
#include <stillpoint/mempool.h>

/* Of a bucket, which is a contiguous block, unless an object is larger. */
enum { USUAL_BUCKET = 64 << 10, MOST_CACHED = 512, FEW = 512 };

/* The place of the threads that are no lcores. */
#define UNKNOWN RTE_MAX_LCORE

struct chunk {
    struct still_pool *pool;  /* NULL until the engine is made; set under `making`, read without it */
    struct chunk *next;
    uintptr_t start, end;
    size_t bucket_bytes, shift;
    uint32_t per_bucket, buckets, objects; /* the objects that the mempool has; the last bucket may have more */
    rte_spinlock_t unknown;   /* held by the thread that uses the local of all threads that are no lcores */
    struct still_local *local[RTE_MAX_LCORE + 1];
};

struct data {
    struct chunk *first, *last;
    struct chunk *current[RTE_MAX_LCORE + 1]; /* the chunk from which an lcore got objects last; NULL: the first */
    rte_spinlock_t making;    /* of engines */
    size_t bucket_bytes, stride, align, cache;
    uint32_t per_bucket;
};

/* Whether this process makes mempools. In a secondary process it does not, and `pool_data` is an address of the primary one. */
static bool is_primary;

#define LOG(...) rte_log(RTE_LOG_ERR, RTE_LOGTYPE_MEMPOOL, "stillpoint: " __VA_ARGS__)

static struct still_pool_options options_of(const struct data *data, size_t bucket_bytes)
{
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;

    options.bucket_bytes = bucket_bytes;
    options.stride = data->stride;
    options.cache = data->cache;
    options.max_locals = RTE_MAX_LCORE + 1;
    return options;
}

static int pool_alloc(struct rte_mempool *mp)
{
    const struct still_mempool_config *config = mp->pool_config;
    struct still_layout layout = { .size = sizeof layout };
    struct still_pool_options options;
    struct data *data;

    if (rte_eal_process_type() != RTE_PROC_PRIMARY)
        return -ENOTSUP;
    if (config != NULL && config->size < sizeof *config) {
        LOG("pool_config is no struct still_mempool_config: set its `size`\n");
        return -EINVAL;
    }
    data = calloc(1, sizeof *data);
    if (data == NULL)
        return -ENOMEM;
    rte_spinlock_init(&data->making);
    data->stride = mp->header_size + mp->elt_size + mp->trailer_size;
    data->align = mp->flags & RTE_MEMPOOL_F_NO_CACHE_ALIGN ? sizeof(uint64_t) : RTE_MEMPOOL_ALIGN;
    data->bucket_bytes = config != NULL && config->bucket_bytes != 0 ? config->bucket_bytes : USUAL_BUCKET;
    while (config == NULL && data->bucket_bytes < data->stride)
        data->bucket_bytes *= 2;
    /* In a mempool of few objects, what idle threads keep would be missed. */
    data->cache = mp->size <= FEW ? STILL_ALL : RTE_MIN(mp->size / 32, (uint32_t)MOST_CACHED);
    if (config != NULL && config->cache != 0)
        data->cache = config->cache;
    options = options_of(data, data->bucket_bytes);
    if (still_pool_layout(1, mp->elt_size, data->align, &options, &layout) != 0) {
        LOG("%s: %s\n", mp->name, still_error());
        free(data);
        return -EINVAL;
    }
    data->per_bucket = (uint32_t)layout.objects;
    mp->pool_data = data;
    is_primary = true;
    return 0;
}

/* DPDK has freed the memory of the objects, which the engines do not touch. */
static void free_chunks(struct data *data)
{
    struct chunk *chunk = data->first;

    while (chunk != NULL) {
        struct chunk *next = chunk->next;

        for (unsigned i = 0; i <= UNKNOWN; i++)
            if (chunk->local[i] != NULL)
                still_local_free(chunk->local[i]);
        if (chunk->pool != NULL)
            (void)still_pool_free(chunk->pool);
        free(chunk);
        chunk = next;
    }
    data->first = data->last = NULL;
    memset(data->current, 0, sizeof data->current);
}

static void pool_free(struct rte_mempool *mp)
{
    struct data *data = mp->pool_data;

    if (!is_primary || data == NULL)
        return;
    free_chunks(data);
    free(data);
    mp->pool_data = NULL;
}

static ssize_t pool_calc_mem_size(const struct rte_mempool *mp, uint32_t objects, uint32_t pg_shift, size_t *min_chunk_size,
                                  size_t *align)
{
    const struct data *data = mp->pool_data;

    (void)pg_shift; /* A chunk may be any part of a run of pages. */
    /* Buckets at such addresses divide huge pages without a rest. */
    *min_chunk_size = *align = data->bucket_bytes;
    return (ssize_t)((objects + (size_t)data->per_bucket - 1) / data->per_bucket * data->bucket_bytes);
}

/* The address of object `i` of a bucket, after its header. */
static char *object_at(const struct rte_mempool *mp, const struct chunk *chunk, uint32_t bucket, uint32_t i)
{
    const struct data *data = mp->pool_data;
    size_t offset = bucket * chunk->bucket_bytes + (bucket % 2) * chunk->shift + i * data->stride;

    return (char *)chunk->start + mp->header_size + offset;
}

/* Whether memory from `start` on may belong to this chunk: its buckets are full, and nobody uses it yet. */
static bool goes_on(const struct chunk *chunk, uintptr_t start, size_t bucket_bytes)
{
    return chunk != NULL && chunk->pool == NULL && chunk->bucket_bytes == bucket_bytes && chunk->end == start &&
           chunk->objects == chunk->buckets * chunk->per_bucket;
}

/* Adds a chunk without buckets. Returns NULL if there is no memory for it. */
static struct chunk *add_chunk(const struct rte_mempool *mp, uintptr_t start, size_t bucket_bytes)
{
    struct data *data = mp->pool_data;
    struct still_pool_options options = options_of(data, bucket_bytes);
    struct still_layout layout = { .size = sizeof layout };
    struct chunk *chunk;

    if (still_pool_layout(1, mp->elt_size, data->align, &options, &layout) != 0)
        return NULL;
    chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL)
        return NULL;
    rte_spinlock_init(&chunk->unknown);
    chunk->start = chunk->end = start;
    chunk->bucket_bytes = bucket_bytes;
    chunk->per_bucket = (uint32_t)layout.objects;
    chunk->shift = layout.shift;
    *(data->last == NULL ? &data->first : &data->last->next) = chunk;
    data->last = chunk;
    return chunk;
}

static int pool_populate(struct rte_mempool *mp, unsigned max_objs, void *vaddr, rte_iova_t iova, size_t len,
                         rte_mempool_populate_obj_cb_t *obj_cb, void *obj_cb_arg)
{
    struct data *data = mp->pool_data;
    size_t bucket_bytes = data->bucket_bytes;
    uint32_t per_bucket, first, buckets, objects, done = 0;
    struct chunk *chunk;

    /* A populate that fails half-way takes all objects back, and may be tried again. */
    if (mp->populated_size == 0)
        free_chunks(data);
    /* A run that is shorter than a bucket has smaller ones, without contiguous blocks. */
    while (bucket_bytes > len)
        bucket_bytes /= 2;
    if (bucket_bytes < data->stride)
        return 0;
    per_bucket = (uint32_t)(bucket_bytes / data->stride);
    buckets = (uint32_t)RTE_MIN((size_t)(max_objs + per_bucket - 1) / per_bucket, len / bucket_bytes);
    objects = RTE_MIN(max_objs, buckets * per_bucket);

    chunk = data->last;
    if (!goes_on(chunk, (uintptr_t)vaddr, bucket_bytes))
        chunk = add_chunk(mp, (uintptr_t)vaddr, bucket_bytes);
    if (chunk == NULL)
        return -ENOMEM;
    first = chunk->buckets;
    chunk->buckets += buckets;
    chunk->objects += objects;
    chunk->end += buckets * bucket_bytes;
    for (uint32_t b = first; b < first + buckets; b++)
        for (uint32_t i = 0; i < per_bucket && done < objects; i++, done++) {
            char *object = object_at(mp, chunk, b, i);

            obj_cb(mp, obj_cb_arg, object, iova == RTE_BAD_IOVA ? RTE_BAD_IOVA : iova + (rte_iova_t)(object - (char *)vaddr));
        }
    return (int)objects;
}

/* Takes all objects, and puts back those that the mempool has. Returns false if there is no memory for a list of the blocks. */
static bool withhold_others(const struct rte_mempool *mp, const struct chunk *chunk, struct still_pool *pool)
{
    uint32_t in_last = chunk->objects - (chunk->buckets - 1) * chunk->per_bucket;
    struct still_local *local;
    void **blocks;
    bool done = false;

    if (in_last == chunk->per_bucket)
        return true;
    local = still_local_new(pool);
    blocks = malloc(chunk->buckets * sizeof *blocks);
    if (local != NULL && blocks != NULL && still_local_get_blocks(local, blocks, chunk->buckets) == 0) {
        void *last = object_at(mp, chunk, chunk->buckets - 1, 0);

        done = true;
        for (uint32_t b = 0; b < chunk->buckets; b++) {
            uint32_t objects = blocks[b] == last ? in_last : chunk->per_bucket;

            for (uint32_t i = 0; i < objects; i++)
                done &= still_local_put(local, (char *)blocks[b] + i * ((struct data *)mp->pool_data)->stride) == 0;
        }
    }
    free(blocks);
    if (local != NULL)
        still_local_free(local);
    return done;
}

/* Makes the engine of a chunk. Called under `making`. */
static bool make(const struct rte_mempool *mp, struct chunk *chunk)
{
    const struct data *data = mp->pool_data;
    struct still_pool_options options = options_of(data, chunk->bucket_bytes);
    struct still_pool *pool;

    /* The memory ends a header after that of the chunk. No object is there. The engine is not hardened, and so touches no memory: what is
     * in an object stays, as DPDK promises. */
    options.memory = object_at(mp, chunk, 0, 0);
    options.memory_bytes = chunk->buckets * chunk->bucket_bytes;
    pool = still_pool_new((size_t)chunk->buckets * chunk->per_bucket, mp->elt_size, data->align, &options);
    if (pool == NULL || !withhold_others(mp, chunk, pool)) {
        LOG("%s: %s\n", mp->name, still_error());
        if (pool != NULL)
            (void)still_pool_free(pool);
        return false;
    }
    /* Release: whoever finds the engine sees it whole. */
    __atomic_store_n(&chunk->pool, pool, __ATOMIC_RELEASE);
    return true;
}

static __rte_noinline bool make_slowly(const struct rte_mempool *mp, struct chunk *chunk)
{
    struct data *data = mp->pool_data;
    bool is_there;

    rte_spinlock_lock(&data->making);
    is_there = chunk->pool != NULL || make(mp, chunk);
    rte_spinlock_unlock(&data->making);
    return is_there;
}

static inline struct chunk *first_of(const struct rte_mempool *mp)
{
    return ((struct data *)mp->pool_data)->first;
}

static __rte_noinline struct still_local *make_local(const struct rte_mempool *mp, struct chunk *chunk, unsigned place)
{
    struct still_local *local;

    /* Acquire: with the release in make. */
    if (__atomic_load_n(&chunk->pool, __ATOMIC_ACQUIRE) == NULL && !make_slowly(mp, chunk))
        return NULL;
    local = still_local_new(chunk->pool);
    if (local == NULL)
        return NULL;
    /* Another thread may get the number of this one, and any thread may free the mempool. */
    (void)still_local_detach(local);
    return chunk->local[place] = local;
}

/* The calling thread's local of a chunk, which it gives up by leave(). NULL if there is no memory for one. */
static inline struct still_local *enter(const struct rte_mempool *mp, struct chunk *chunk, unsigned *place)
{
    unsigned lcore = rte_lcore_id();
    struct still_local *local;

    if (unlikely(lcore >= RTE_MAX_LCORE)) {
        lcore = UNKNOWN;
        rte_spinlock_lock(&chunk->unknown);
    }
    *place = lcore;
    local = chunk->local[lcore];
    return likely(local != NULL) ? local : make_local(mp, chunk, lcore);
}

static inline void leave(struct chunk *chunk, unsigned place)
{
    if (unlikely(place == UNKNOWN))
        rte_spinlock_unlock(&chunk->unknown);
}

static inline bool get(const struct rte_mempool *mp, struct chunk *chunk, void **objects, unsigned count)
{
    unsigned place;
    struct still_local *local = enter(mp, chunk, &place);
    bool done = local != NULL && still_local_get_many(local, objects, count) == 0;

    leave(chunk, place);
    return done;
}

static inline bool get_blocks(const struct rte_mempool *mp, struct chunk *chunk, void **starts, unsigned count)
{
    unsigned place;
    struct still_local *local = enter(mp, chunk, &place);
    bool done = local != NULL && still_local_get_blocks(local, starts, count) == 0;

    leave(chunk, place);
    return done;
}

static inline int put(const struct rte_mempool *mp, struct chunk *chunk, void *const *objects, unsigned count)
{
    unsigned place;
    struct still_local *local = enter(mp, chunk, &place);
    int answer = local != NULL ? still_local_put_many(local, objects, count) : -ENOMEM;

    leave(chunk, place);
    return answer;
}

static inline bool has(const struct chunk *chunk, const void *object)
{
    return (uintptr_t)object - chunk->start < chunk->end - chunk->start;
}

static __rte_noinline int put_to_several(struct rte_mempool *mp, void *const *objects, unsigned count)
{
    for (unsigned i = 0, end; i < count; i = end) {
        struct chunk *chunk = first_of(mp);
        int answer;

        while (chunk != NULL && !has(chunk, objects[i]))
            chunk = chunk->next;
        if (chunk == NULL)
            return -EINVAL;
        for (end = i + 1; end < count && has(chunk, objects[end]); end++)
            ;
        answer = put(mp, chunk, objects + i, end - i);
        if (answer != 0)
            return answer;
    }
    return 0;
}

static int pool_enqueue(struct rte_mempool *mp, void *const *objects, unsigned count)
{
    struct chunk *chunk;

    if (unlikely(!is_primary))
        return -ENOTSUP;
    chunk = first_of(mp);
    if (likely(chunk != NULL && chunk->next == NULL))
        return put(mp, chunk, objects, count);
    return put_to_several(mp, objects, count);
}

/* Collects objects from all chunks, or none. */
static __rte_noinline int get_from_several(struct rte_mempool *mp, void **objects, unsigned count)
{
    struct data *data = mp->pool_data;
    unsigned lcore = rte_lcore_id(), got = 0;

    for (struct chunk *chunk = data->first; chunk != NULL; chunk = chunk->next) {
        /* As many as the chunk has: half as many each time that it has fewer. */
        for (unsigned want = count - got; want > 0;) {
            want = RTE_MIN(want, count - got);
            if (want > 0 && get(mp, chunk, objects + got, want))
                got += want;
            else
                want /= 2;
        }
        if (got == count) {
            /* Threads that are no lcores begin with the first chunk. */
            if (lcore < RTE_MAX_LCORE)
                data->current[lcore] = chunk;
            return 0;
        }
    }
    (void)put_to_several(mp, objects, got);
    return -ENOBUFS;
}

static int pool_dequeue(struct rte_mempool *mp, void **objects, unsigned count)
{
    const struct data *data;
    struct chunk *chunk;
    unsigned lcore;

    if (unlikely(!is_primary))
        return -ENOTSUP;
    data = mp->pool_data;
    lcore = rte_lcore_id();
    chunk = data->current[lcore < RTE_MAX_LCORE ? lcore : UNKNOWN];
    if (unlikely(chunk == NULL))
        chunk = data->first;
    if (unlikely(chunk == NULL))
        return -ENOBUFS;
    if (likely(get(mp, chunk, objects, count)))
        return 0;
    return data->first->next == NULL ? -ENOBUFS : get_from_several(mp, objects, count);
}

/* The objects of a whole bucket go back. */
static void put_block(struct rte_mempool *mp, struct chunk *chunk, char *start)
{
    for (uint32_t i = 0; i < chunk->per_bucket; i++) {
        void *object = start + i * ((struct data *)mp->pool_data)->stride;

        (void)put(mp, chunk, &object, 1);
    }
}

static int pool_dequeue_contig_blocks(struct rte_mempool *mp, void **starts, unsigned count)
{
    const struct data *data = mp->pool_data;
    unsigned got = 0;

    if (unlikely(!is_primary))
        return -ENOTSUP;
    for (struct chunk *chunk = data->first; chunk != NULL; chunk = chunk->next) {
        if (chunk->bucket_bytes != data->bucket_bytes)
            continue;
        if (get_blocks(mp, chunk, starts + got, count - got))
            return 0;
        while (got < count && get_blocks(mp, chunk, starts + got, 1))
            got++;
    }
    while (got-- > 0) {
        struct chunk *chunk = first_of(mp);

        while (!has(chunk, starts[got]))
            chunk = chunk->next;
        put_block(mp, chunk, starts[got]);
    }
    return -ENOBUFS;
}

static unsigned pool_get_count(const struct rte_mempool *mp)
{
    size_t available = 0;

    if (!is_primary)
        return 0;
    for (struct chunk *chunk = first_of(mp); chunk != NULL; chunk = chunk->next) {
        struct still_pool_info info = { .size = sizeof info };

        /* Acquire: with the release in make. Without an engine, all objects are there. */
        if (__atomic_load_n(&chunk->pool, __ATOMIC_ACQUIRE) == NULL)
            available += chunk->objects;
        else if (still_pool_stats(chunk->pool, &info) == 0)
            available += info.available;
    }
    return (unsigned)available;
}

static int pool_get_info(const struct rte_mempool *mp, struct rte_mempool_info *info)
{
    if (!is_primary)
        return -ENOTSUP;
    info->contig_block_size = ((const struct data *)mp->pool_data)->per_bucket;
    return 0;
}

static const struct rte_mempool_ops ops = {
    .name = "stillpoint",
    .alloc = pool_alloc,
    .free = pool_free,
    .enqueue = pool_enqueue,
    .dequeue = pool_dequeue,
    .get_count = pool_get_count,
    .calc_mem_size = pool_calc_mem_size,
    .populate = pool_populate,
    .get_info = pool_get_info,
    .dequeue_contig_blocks = pool_dequeue_contig_blocks,
};

RTE_MEMPOOL_REGISTER_OPS(ops)
