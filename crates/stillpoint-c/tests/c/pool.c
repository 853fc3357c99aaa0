/* Pools: objects and blocks are taken and put back, on one thread and across threads. */
#include "check.h"

#include <pthread.h>

enum { OBJECTS = 1000, BYTES = 200 };

static struct still_pool *pool;
static struct still_local *first;
static void *handed_over[100];

static void *puts_back(void *unused)
{
    REFUSED(still_local_free(first), -EPERM, "another thread");
    REFUSED(still_local_detach(first), -EPERM, "another thread");
    struct still_local *local = still_local_new(pool);
    CHECK(local != NULL);
    CHECK(still_local_new(pool) == NULL && errno == EAGAIN); /* at most two threads may have a local */
    CHECK(still_local_put_many(local, handed_over, 100) == 0);
    CHECK(still_local_free(local) == 0);
    return unused;
}

/* C programs free a thread's handles in key destructors. Rust's own thread-locals are destroyed by then. */
static pthread_key_t key;

static void at_the_end(void *round)
{
    if ((uintptr_t)round < 3) {
        CHECK(pthread_setspecific(key, (void *)((uintptr_t)round + 1)) == 0);
        return;
    }
    struct still_local *local = still_local_new(pool);
    void *object = still_local_get(local);
    CHECK(object != NULL && still_local_put(local, object) == 0 && still_local_free(local) == 0);
}

static void *ends(void *unused)
{
    CHECK(pthread_setspecific(key, (void *)(uintptr_t)1) == 0);
    return unused;
}

static void given_memory(void)
{
    enum { GIVEN = 1 << 20 };
    void *memory = aligned_alloc(4096, GIVEN);
    CHECK(memory != NULL);
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;
    options.memory = memory;
    options.memory_bytes = GIVEN;
    options.stride = 256;
    struct still_pool *given = still_pool_new(100, 256, 64, &options);
    CHECK(given != NULL);
    struct still_local *local = still_local_new(given);
    char *object = (char *)still_local_get(local);
    CHECK(object >= (char *)memory && object + 256 <= (char *)memory + GIVEN);
    CHECK(still_local_free(local) == 0 && still_pool_free(given) == 1); /* the object is in use */
    free(memory);
}

/* The layout is known before the pool is there. */
static void layout(void)
{
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;
    options.bucket_bytes = 4096;
    options.stride = 192; /* 21 in a bucket, and a line is left */
    struct still_layout layout;
    layout.size = sizeof layout;
    CHECK(still_pool_layout(100, 192, 64, &options, &layout) == 0);
    CHECK(layout.objects == 21 && layout.capacity == 105 && layout.bytes == 5 * 4096 && layout.stride == 192 && layout.shift == 64);
    options.memory = aligned_alloc(4096, layout.bytes);
    options.memory_bytes = layout.bytes;
    CHECK(options.memory != NULL);
    struct still_pool *given = still_pool_new(100, 192, 64, &options);
    struct still_local *local = still_local_new(given);
    void *starts[6];
    REFUSED(still_local_get_blocks(local, starts, 6), -ENOMEM, "no whole free bucket");
    CHECK(still_local_get_blocks(local, NULL, 0) == 0);
    REFUSED(still_local_get_blocks(local, NULL, 1), -EINVAL, "NULL");
    CHECK(still_local_get_blocks(local, starts, 5) == 0);
    size_t found = 0;
    for (size_t b = 0; b < 5; b++)
        for (size_t i = 0; i < 5; i++)
            found += starts[i] == (char *)options.memory + b * layout.bucket_bytes + (b % 2) * layout.shift;
    CHECK(found == 5);
    CHECK(still_local_free(local) == 0 && still_pool_free(given) == 105);
    free(options.memory);
    options.stride = 100;
    REFUSED(still_pool_layout(100, 192, 64, &options, &layout), -EINVAL, "stride");
    REFUSED(still_pool_layout(100, 192, 64, NULL, NULL), -EINVAL, "NULL");
}

static struct still_local *detached;

static void *detaches(void *shared)
{
    detached = still_local_new((struct still_pool *)shared);
    CHECK(detached != NULL && still_local_detach(detached) == 0 && still_local_detach(detached) == 0);
    handed_over[0] = still_local_get(detached);
    return NULL;
}

/* A local that no thread owns stays when its thread ends. Any thread uses and frees it. */
static void detach(void)
{
    struct still_pool *shared = still_pool_new(OBJECTS, BYTES, 64, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, detaches, shared) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(still_pool_free(shared) == -EBUSY);
    CHECK(still_local_put(detached, handed_over[0]) == 0);
    CHECK(still_local_free(detached) == 0 && still_pool_free(shared) == 0);
}

/* Growth by large pieces reads /proc, which has cancellation points. A cancellation during a call takes effect after the call. */
static void *grows(void *growing)
{
    static void *objects[2048];
    struct still_local *local = still_local_new((struct still_pool *)growing);
    CHECK(local != NULL && pthread_cancel(pthread_self()) == 0);
    for (size_t i = 0; i < 2048; i++)
        CHECK((objects[i] = still_local_get(local)) != NULL);
    CHECK(still_local_put_many(local, objects, 2048) == 0 && still_local_free(local) == 0);
    pthread_testcancel();
    return NULL;
}

static void cancelled(void)
{
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;
    options.max_objects = 4096;
    options.growth_step = 2048;
    struct still_pool *growing = still_pool_new(64, 4096, 64, &options);
    CHECK(growing != NULL);
    pthread_t thread;
    void *answer = NULL;
    CHECK(pthread_create(&thread, NULL, grows, growing) == 0 && pthread_join(thread, &answer) == 0);
    CHECK(answer == PTHREAD_CANCELED && still_pool_free(growing) == 0);
}

int main(void)
{
    layout();
    detach();
    cancelled();
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;
    options.max_locals = 2;
    options.hardened = 1;
    options.pages = STILL_PAGES_SMALL;
    pool = still_pool_new(OBJECTS, BYTES, 64, &options);
    CHECK(pool != NULL);
    first = still_local_new(pool);
    CHECK(first != NULL);
    struct still_pool_info stats;
    stats.size = sizeof stats;
    CHECK(still_pool_stats(pool, &stats) == 0 && stats.capacity >= OBJECTS && stats.in_use == 0);

    void *object = still_local_get(first);
    CHECK(object != NULL && (uintptr_t)object % 64 == 0);
    memset(object, 1, BYTES);
    CHECK(still_local_put(first, object) == 0);
    REFUSED(still_local_put(first, object), -EALREADY, "free already");
    CHECK(still_pool_stats(pool, &stats) == 0 && stats.misuses == 0);
    memset((char *)object + BYTES / 2, 3, 1);
    REFUSED(still_local_put(first, &stats), -EINVAL, "outside the pool");
    REFUSED(still_local_put(first, NULL), -EINVAL, "NULL");

    /* The call gets all objects or none. */
    static void *all[100000];
    size_t capacity = stats.capacity;
    REFUSED(still_local_get_many(first, all, capacity + 1), -ENOMEM, "free objects");
    CHECK(still_local_get_many(first, all, capacity) == 0);
    CHECK(still_local_get(first) == NULL && errno == ENOMEM);
    CHECK(still_pool_stats(pool, &stats) == 0 && stats.available == 0 && stats.in_use == capacity && stats.misuses == 1);
    CHECK(still_local_put_many(first, all, capacity) == 0);
    CHECK(still_local_get_many(first, NULL, 0) == 0);
    REFUSED(still_local_get_many(first, NULL, 1), -EINVAL, "NULL");
    void *nothing[2] = { NULL, NULL };
    REFUSED(still_local_put_many(first, nothing, 2), -EINVAL, "NULL");
    /* Those before the one that is refused have been put back. */
    void *some[3];
    CHECK(still_local_get_many(first, some, 2) == 0);
    some[2] = NULL;
    REFUSED(still_local_put_many(first, some, 3), -EINVAL, "NULL");
    CHECK(still_pool_stats(pool, &stats) == 0 && stats.available == capacity);

    struct still_block block;
    CHECK(still_local_get_block(first, &block) == 0 && block.objects > 1 && block.stride >= BYTES);
    for (size_t i = 0; i < block.objects; i++)
        memset((char *)block.start + i * block.stride, 2, BYTES);
    /* A part of a block: nothing is put back. */
    struct still_block part = block;
    part.objects--;
    REFUSED(still_local_put_block(first, &part), -EINVAL, "no whole block");
    part = block;
    part.start = (char *)block.start + block.stride;
    REFUSED(still_local_put_block(first, &part), -EINVAL, "nothing of the block");
    struct still_pool_info info;
    info.size = sizeof info;
    CHECK(still_pool_stats(pool, &info) == 0);
    size_t out = info.in_use;
    CHECK(still_local_put(first, (char *)block.start + 2 * block.stride) == 0);
    REFUSED(still_local_put_block(first, &block), -EALREADY, "because of object 2");
    CHECK(still_pool_stats(pool, &info) == 0 && info.in_use == out - 1);
    for (size_t i = 0; i < block.objects; i++)
        CHECK(i == 2 || still_local_put(first, (char *)block.start + i * block.stride) == 0);
    CHECK(still_local_get_block(first, &block) == 0);

    CHECK(still_local_put_block(first, &block) == 0);
    REFUSED(still_local_put_block(first, &block), -EALREADY, "");
    CHECK(still_local_get_block(first, &block) == 0);
    for (size_t i = 0; i < block.objects; i++)
        CHECK(still_local_put(first, (char *)block.start + i * block.stride) == 0); /* one by one */

    /* Objects that another thread puts back. */
    CHECK(still_local_get_many(first, handed_over, 100) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, puts_back, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(still_pool_stats(pool, &stats) == 0 && stats.in_use == 0);

    CHECK(pthread_key_create(&key, at_the_end) == 0);
    CHECK(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
    REFUSED(still_local_get_many(first, all, SIZE_MAX), -EINVAL, "an array of 18446744073709551615 elements");

    REFUSED(still_pool_free(pool), -EBUSY, "locals");
    CHECK(still_local_free(first) == 0 && still_pool_free(pool) == 0);
    REFUSED(still_pool_free(pool), -EBADF, "freed");

    /* Counts of calls. */
    struct still_pool_options counting = STILL_POOL_OPTIONS_INIT;
    counting.count_calls = 1;
    counting.cache = 32;
    struct still_pool *counted = still_pool_new(OBJECTS, 64, 64, &counting);
    CHECK(counted != NULL);
    first = still_local_new(counted);
    CHECK(first != NULL);
    void *one = still_local_get(first);
    CHECK(one != NULL && still_local_put(first, one) == 0);
    CHECK(still_local_get_many(first, all, 20) == 0 && still_local_put_many(first, all, 20) == 0);
    CHECK(still_local_get_many(first, all, OBJECTS * 2) == -ENOMEM && still_local_put(first, &first) == -EINVAL);
    CHECK(still_local_get_block(first, &block) == 0 && still_local_put_block(first, &block) == 0);
    struct still_pool_calls calls;
    calls.size = sizeof calls;
    CHECK(still_pool_call_stats(counted, &calls) == 0);
    CHECK(calls.gets == 2 && calls.got == 21 && calls.puts == 2 && calls.put == 21);
    CHECK(calls.failed_gets == 1 && calls.not_got == OBJECTS * 2 && calls.failed_puts == 1);
    CHECK(calls.block_gets == 1 && calls.block_puts == 1 && calls.failed_block_gets == 0 && calls.failed_block_puts == 0);
    CHECK(still_local_free(first) == 0 && still_pool_free(counted) == 0);
    REFUSED(still_pool_call_stats(counted, &calls), -EBADF, "freed");
    counting.reserved = 1;
    CHECK(still_pool_new(8, 8, 8, &counting) == NULL && strstr(still_error(), "`reserved` is 1") != NULL);

    CHECK(still_pool_new(0, 8, 8, NULL) == NULL && errno == EINVAL);
    CHECK(still_pool_new(8, 8, 3, NULL) == NULL && errno == EINVAL);
    options.pages = 9;
    CHECK(still_pool_new(8, 8, 8, &options) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "no still_pages 9: set `pages` to STILL_PAGES_BEST") != NULL);
    given_memory();
    return 0;
}
