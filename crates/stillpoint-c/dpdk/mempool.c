/*
 * A driver of rte_mempool named "stillpoint": objects come from pools of stillpoint, in the memory that DPDK provides.
 *
 * A *chunk* is a run of that memory, and has a pool of its own, an engine, whose objects are the mempool's: the engine's memory begins
 * one header after the chunk, and its stride is header + element + trailer. So no list of objects exists besides the engine's bits, and
 * the engine writes to no object. DPDK calls populate() once for each physically contiguous run; runs that follow each other in virtual
 * memory become one chunk. The engine of a chunk is made when the mempool is first used, since no more may follow then. Memory is added
 * while no other thread uses the mempool (DPDK's rings would allow it); so chunks change only then.
 *
 * Each lcore, registered threads included, has a local of each engine, by its number. All other threads share one more, under a lock, and
 * so does an lcore for whose local there is no memory: putting objects back never fails for want of memory.
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
    uintptr_t start, end;
    size_t bucket_bytes, shift;
    uint32_t per_bucket, buckets, objects; /* the objects that the mempool has; the last bucket may have more */
    rte_spinlock_t unknown;   /* held by the thread that uses the local of all threads that are no lcores */
    struct still_local *local[RTE_MAX_LCORE + 1]; /* that of unknown threads is made with the engine, others at their first use */
};

struct data {
    struct chunk **chunks;    /* by address */
    struct chunk *last;       /* the one that was added last */
    uint32_t count;
    uint32_t current[RTE_MAX_LCORE + 1]; /* the chunk from which an lcore got objects last; that of unknown threads stays the first */
    rte_spinlock_t making;    /* of engines */
    bool failed;              /* to make an engine: said once */
    size_t bucket_bytes, stride, align, cache;
    uint32_t per_bucket;
};

/* Whether this process makes mempools. In a secondary process it does not, and `pool_data` is an address of the primary one. */
static bool is_primary;

#define LOG(...) rte_log(RTE_LOG_ERR, RTE_LOGTYPE_MEMPOOL, "stillpoint: " __VA_ARGS__)

/* The options of an engine for some of the objects. */
static struct still_pool_options options_of(const struct rte_mempool *mp, const struct data *data, size_t bucket_bytes, uint32_t objects)
{
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;

    options.bucket_bytes = bucket_bytes;
    options.stride = data->stride;
    /* An lcore keeps its share of each chunk, so that it keeps no more of many chunks than of one. What idle threads keep of few objects
     * would be missed. */
    if (data->cache != STILL_ALL && objects > FEW)
        options.cache = (size_t)((uint64_t)data->cache * RTE_MIN(objects, mp->size) / mp->size);
    if (options.cache == 0)
        options.cache = options.high_water = STILL_ALL;
    options.max_locals = RTE_MAX_LCORE + 2; /* one more to withhold objects */
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
    while ((config == NULL || config->bucket_bytes == 0) && data->bucket_bytes < data->stride)
        data->bucket_bytes *= 2;
    data->cache = config != NULL && config->cache != 0 ? config->cache : RTE_MIN(mp->size / 32, (uint32_t)MOST_CACHED);
    options = options_of(mp, data, data->bucket_bytes, mp->size);
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
    for (uint32_t c = 0; c < data->count; c++) {
        struct chunk *chunk = data->chunks[c];

        for (unsigned i = 0; i <= UNKNOWN; i++)
            if (chunk->local[i] != NULL)
                still_local_free(chunk->local[i]);
        if (chunk->pool != NULL)
            (void)still_pool_free(chunk->pool);
        free(chunk);
    }
    free(data->chunks);
    data->chunks = NULL;
    data->last = NULL;
    data->count = 0;
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

/* The bytes of a bucket in a run of pages that is shorter than the usual ones. */
static size_t smallest_bucket(const struct data *data)
{
    size_t bytes = data->bucket_bytes;

    while (bytes / 2 >= data->stride)
        bytes /= 2;
    return bytes;
}

static ssize_t pool_calc_mem_size(const struct rte_mempool *mp, uint32_t objects, uint32_t pg_shift, size_t *min_chunk_size,
                                  size_t *align)
{
    const struct data *data = mp->pool_data;

    size_t page = pg_shift == 0 ? 0 : (size_t)1 << pg_shift, bytes = smallest_bucket(data), per_page = page / bytes * (bytes / data->stride);

    /* Buckets at such addresses divide huge pages without a rest. */
    *min_chunk_size = *align = data->bucket_bytes;
    if (per_page == 0 || page >= data->bucket_bytes)
        return (ssize_t)((objects + (size_t)data->per_bucket - 1) / data->per_bucket * data->bucket_bytes);
    /* No two pages need be neighbours: then each has buckets of its own, the smallest ones. */
    *min_chunk_size = bytes;
    return (ssize_t)((objects + per_page - 1) / per_page * page);
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
    struct still_pool_options options = options_of(mp, data, bucket_bytes, 1);
    struct still_layout layout = { .size = sizeof layout };
    struct chunk **chunks, *chunk;
    uint32_t place = data->count;

    if (still_pool_layout(1, mp->elt_size, data->align, &options, &layout) != 0)
        return NULL;
    chunks = realloc(data->chunks, (data->count + 1) * sizeof *chunks);
    if (chunks == NULL)
        return NULL;
    data->chunks = chunks;
    chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL)
        return NULL;
    rte_spinlock_init(&chunk->unknown);
    chunk->start = chunk->end = start;
    chunk->bucket_bytes = bucket_bytes;
    chunk->per_bucket = (uint32_t)layout.objects;
    chunk->shift = layout.shift;
    for (; place > 0 && chunks[place - 1]->start > start; place--)
        chunks[place] = chunks[place - 1];
    chunks[place] = chunk;
    data->count++;
    data->last = chunk;
    return chunk;
}

/* Makes objects in buckets of this size. Returns their number. */
static uint32_t populate_by(struct rte_mempool *mp, size_t bucket_bytes, unsigned max_objs, char *vaddr, rte_iova_t iova, size_t len,
                            rte_mempool_populate_obj_cb_t *obj_cb, void *obj_cb_arg)
{
    struct data *data = mp->pool_data;
    uint32_t per_bucket, first, buckets, objects, done = 0;
    size_t wanted;
    struct chunk *chunk;

    if (len < bucket_bytes || max_objs == 0)
        return 0;
    per_bucket = (uint32_t)(bucket_bytes / data->stride);
    wanted = ((size_t)max_objs + per_bucket - 1) / per_bucket;
    buckets = (uint32_t)RTE_MIN(wanted, len / bucket_bytes);
    objects = (uint32_t)RTE_MIN((size_t)max_objs, (size_t)buckets * per_bucket);

    chunk = data->last;
    if (!goes_on(chunk, (uintptr_t)vaddr, bucket_bytes))
        chunk = add_chunk(mp, (uintptr_t)vaddr, bucket_bytes);
    if (chunk == NULL)
        return 0; /* DPDK keeps the memory of a call that fails otherwise */
    first = chunk->buckets;
    chunk->buckets += buckets;
    chunk->objects += objects;
    chunk->end += buckets * bucket_bytes;
    for (uint32_t b = first; b < first + buckets; b++)
        for (uint32_t i = 0; i < per_bucket && done < objects; i++, done++) {
            char *object = object_at(mp, chunk, b, i);

            obj_cb(mp, obj_cb_arg, object, iova == RTE_BAD_IOVA ? RTE_BAD_IOVA : iova + (rte_iova_t)(object - vaddr));
        }
    return objects;
}

static int pool_populate(struct rte_mempool *mp, unsigned max_objs, void *vaddr, rte_iova_t iova, size_t len,
                         rte_mempool_populate_obj_cb_t *obj_cb, void *obj_cb_arg)
{
    struct data *data = mp->pool_data;
    size_t rest = len % data->bucket_bytes, at = len - rest;
    uint32_t done;

    /* A populate that fails half-way takes all objects back, and may be tried again. */
    if (mp->populated_size == 0)
        free_chunks(data);
    done = populate_by(mp, data->bucket_bytes, max_objs, vaddr, iova, at, obj_cb, obj_cb_arg);
    if (iova != RTE_BAD_IOVA)
        iova += at;
    /* What is shorter than a bucket has the smallest ones, so that runs of different lengths make one chunk; no contiguous blocks. */
    return (int)(done + populate_by(mp, smallest_bucket(data), max_objs - done, (char *)vaddr + at, iova, rest, obj_cb, obj_cb_arg));
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

/* A local that no thread owns: another one may get the number of this thread, and any thread may free the mempool. */
static struct still_local *new_local(struct still_pool *pool)
{
    struct still_local *local = still_local_new(pool);

    if (local != NULL)
        (void)still_local_detach(local);
    return local;
}

/* Makes the engine of a chunk. Called under `making`. */
static bool make(const struct rte_mempool *mp, struct chunk *chunk)
{
    struct data *data = mp->pool_data;
    struct still_pool_options options = options_of(mp, data, chunk->bucket_bytes, chunk->objects);
    struct still_pool *pool;

    /* The memory ends a header after that of the chunk. No object is there. The engine is not hardened, and so touches no memory: what is
     * in an object stays, as DPDK promises. */
    options.memory = object_at(mp, chunk, 0, 0);
    options.memory_bytes = chunk->buckets * chunk->bucket_bytes;
    pool = still_pool_new((size_t)chunk->buckets * chunk->per_bucket, mp->elt_size, data->align, &options);
    /* The local first: otherwise it would inherit the bucket that has too few objects. */
    if (pool == NULL || (chunk->local[UNKNOWN] = new_local(pool)) == NULL || !withhold_others(mp, chunk, pool)) {
        if (!data->failed)
            LOG("%s: %s\n", mp->name, still_error());
        data->failed = true;
        if (chunk->local[UNKNOWN] != NULL)
            still_local_free(chunk->local[UNKNOWN]);
        chunk->local[UNKNOWN] = NULL;
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

static __rte_noinline struct still_local *enter_slowly(const struct rte_mempool *mp, struct chunk *chunk, unsigned *place)
{
    /* Acquire: with the release in make. */
    if (__atomic_load_n(&chunk->pool, __ATOMIC_ACQUIRE) == NULL && !make_slowly(mp, chunk))
        return NULL;
    if (*place != UNKNOWN && (chunk->local[*place] = new_local(chunk->pool)) != NULL)
        return chunk->local[*place];
    *place = UNKNOWN;
    rte_spinlock_lock(&chunk->unknown);
    return chunk->local[UNKNOWN];
}

static inline unsigned place_of_thread(void)
{
    unsigned lcore = rte_lcore_id();

    return likely(lcore < RTE_MAX_LCORE) ? lcore : UNKNOWN;
}

/* A local of a chunk, for a thread with this place, which may change, until leave(). NULL if the chunk has no engine. */
static inline struct still_local *enter(const struct rte_mempool *mp, struct chunk *chunk, unsigned *place)
{
    /* The local of unknown threads is read only after the engine was found, since another thread may be making it. */
    if (likely(*place != UNKNOWN && chunk->local[*place] != NULL))
        return chunk->local[*place];
    return enter_slowly(mp, chunk, place);
}

static inline void leave(struct chunk *chunk, const struct still_local *local, unsigned place)
{
    if (unlikely(place == UNKNOWN && local != NULL))
        rte_spinlock_unlock(&chunk->unknown);
}

/* What is done with a local: 0, or a negative error. */
typedef int action(struct still_local *local, void **objects, unsigned count);

static inline int get(struct still_local *local, void **objects, unsigned count)
{
    void *object;

    if (count != 1)
        return still_local_get_many(local, objects, count);
    object = still_local_get(local);
    if (object == NULL)
        return -ENOBUFS;
    *objects = object;
    return 0;
}

static inline int get_blocks(struct still_local *local, void **starts, unsigned count)
{
    return still_local_get_blocks(local, starts, count);
}

/* Only reads the array, which callers pass without its const. */
static inline int put(struct still_local *local, void **objects, unsigned count)
{
    return count == 1 ? still_local_put(local, *objects) : still_local_put_many(local, objects, count);
}

static __rte_noinline int act_slowly(const struct rte_mempool *mp, struct chunk *chunk, action *act, void **objects, unsigned count)
{
    unsigned place = place_of_thread();
    struct still_local *local = enter(mp, chunk, &place);
    int answer = local != NULL ? act(local, objects, count) : -ENOMEM;

    leave(chunk, local, place);
    return answer;
}

/* Does something with the calling thread's local of a chunk. Nearly always it is an lcore that has one: no lock is held then, and the
 * call of the library is the last thing done. */
static __rte_always_inline int act_in(const struct rte_mempool *mp, struct chunk *chunk, action *act, void **objects, unsigned count)
{
    unsigned place = place_of_thread();

    if (likely(place != UNKNOWN && chunk->local[place] != NULL))
        return act(chunk->local[place], objects, count);
    return act_slowly(mp, chunk, act, objects, count);
}

static inline bool has(const struct chunk *chunk, const void *object)
{
    return (uintptr_t)object - chunk->start < chunk->end - chunk->start;
}

/* The chunk that an object is in; NULL if it is in none. */
static struct chunk *chunk_of(const struct rte_mempool *mp, const void *object)
{
    const struct data *data = mp->pool_data;
    uint32_t low = 0, high = data->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (has(data->chunks[middle], object))
            return data->chunks[middle];
        if ((uintptr_t)object < data->chunks[middle]->start)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static __rte_noinline int put_to_several(struct rte_mempool *mp, void *const *objects, unsigned count)
{
    for (unsigned i = 0, end; i < count; i = end) {
        struct chunk *chunk = chunk_of(mp, objects[i]);
        int answer;

        if (chunk == NULL)
            return -EINVAL;
        for (end = i + 1; end < count && has(chunk, objects[end]); end++)
            ;
        answer = act_in(mp, chunk, put, (void **)(uintptr_t)(objects + i), end - i);
        if (answer != 0)
            return answer;
    }
    return 0;
}

static int pool_enqueue(struct rte_mempool *mp, void *const *objects, unsigned count)
{
    const struct data *data;

    if (unlikely(!is_primary))
        return -ENOTSUP;
    data = mp->pool_data;
    if (likely(data->count == 1))
        return act_in(mp, data->chunks[0], put, (void **)(uintptr_t)objects, count);
    return put_to_several(mp, objects, count);
}

/* Collects objects from all chunks, or none. Begins with the chunk after the current one, which has too few. */
static __rte_noinline int get_from_several(struct rte_mempool *mp, void **objects, unsigned count)
{
    struct data *data = mp->pool_data;
    unsigned place = place_of_thread(), got = 0;

    for (uint32_t n = 1; n <= data->count; n++) {
        uint32_t number = (data->current[place] + n) % data->count;

        /* One object first, since most chunks have none when many are looked at. Then half as many each time that there are fewer. */
        if (act_in(mp, data->chunks[number], get, objects + got, 1) != 0)
            continue;
        got++;
        for (unsigned want = count - got; want > 0;) {
            if (act_in(mp, data->chunks[number], get, objects + got, want) == 0)
                got += want;
            else
                want /= 2;
            want = RTE_MIN(want, count - got);
        }
        if (got == count) {
            if (place != UNKNOWN)
                data->current[place] = number;
            return 0;
        }
    }
    (void)put_to_several(mp, objects, got);
    return -ENOBUFS;
}

static int pool_dequeue(struct rte_mempool *mp, void **objects, unsigned count)
{
    const struct data *data;

    if (unlikely(!is_primary))
        return -ENOTSUP;
    data = mp->pool_data;
    if (unlikely(data->count == 0))
        return -ENOBUFS;
    if (likely(act_in(mp, data->chunks[data->current[place_of_thread()]], get, objects, count) == 0))
        return 0;
    return data->count == 1 ? -ENOBUFS : get_from_several(mp, objects, count);
}

static void put_block(struct rte_mempool *mp, void *start)
{
    struct chunk *chunk = chunk_of(mp, start);
    struct still_block block = { start, chunk->per_bucket, ((const struct data *)mp->pool_data)->stride };
    unsigned place = place_of_thread();
    struct still_local *local = enter(mp, chunk, &place);

    (void)still_local_put_block(local, &block);
    leave(chunk, local, place);
}

static int pool_dequeue_contig_blocks(struct rte_mempool *mp, void **starts, unsigned count)
{
    const struct data *data;
    unsigned got = 0;

    if (unlikely(!is_primary))
        return -ENOTSUP;
    data = mp->pool_data;
    for (uint32_t c = 0; c < data->count; c++) {
        struct chunk *chunk = data->chunks[c];

        if (chunk->bucket_bytes != data->bucket_bytes)
            continue;
        if (act_in(mp, chunk, get_blocks, starts + got, count - got) == 0)
            return 0;
        while (got < count && act_in(mp, chunk, get_blocks, starts + got, 1) == 0)
            got++;
        if (got == count)
            return 0;
    }
    while (got-- > 0)
        put_block(mp, starts[got]);
    return -ENOBUFS;
}

static unsigned pool_get_count(const struct rte_mempool *mp)
{
    const struct data *data = mp->pool_data;
    size_t available = 0;

    for (uint32_t c = 0; is_primary && data != NULL && c < data->count; c++) {
        const struct chunk *chunk = data->chunks[c];
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
    if (!is_primary || mp->pool_data == NULL)
        return -ENOTSUP; /* or it has no memory yet */
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
