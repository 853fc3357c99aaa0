/* For ThreadSanitizer, which must report nothing if the program hands values over correctly (defect 0), and must report each defect (named by
 * its number). Every value that is handed over is plain memory. */
#include "check.h"

#include <pthread.h>

enum { ROUNDS = 300, THREADS = 3 };

static int defect;
static struct still_domain *domain;
static struct object *shared;
static int stop;

/* Reads and writes the object, as only an owner may. */
static void use(struct object *object)
{
    CHECK(object->value >= 0);
}

static void *reads(void *kind)
{
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    struct still_hold *hold = still_hold_new(domain);
    CHECK(still_offline(qsbr) == 0);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        switch ((uintptr_t)kind) {
        case 0:
            still_pin(reader);
            use((struct object *)still_load(&shared));
            still_unpin(reader);
            break;
        case 1: {
            struct still_protected one = still_protect(reader, &shared), two = still_protect(reader, &shared);
            use((struct object *)one.object);
            use((struct object *)two.object);
            still_release(one);
            use((struct object *)two.object);
            still_release(two);
            struct object *held = NULL;
            CHECK(still_hold_protect(hold, &shared, &held) == 1);
            use(held);
            CHECK(still_hold_release(hold) == 0);
            break;
        }
        default:
            CHECK(still_online(qsbr) == 0);
            use((struct object *)still_load(&shared));
            still_quiescent(qsbr);
            use((struct object *)still_load(&shared));
            CHECK(still_offline(qsbr) == 0);
        }
    }
    CHECK(still_hold_free(hold) == 0 && still_qsbr_free(qsbr) == 0 && still_reader_free(reader) == 0);
    return NULL;
}

/* Threads start and end. New threads use the records and handles of threads that have ended. */
static void *comes_and_goes(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        struct still_reader *reader = still_reader_new(domain);
        still_pin(reader);
        still_pin(reader);
        use((struct object *)still_load(&shared));
        still_unpin(reader);
        still_unpin(reader);
        CHECK(still_reader_free(reader) == 0);
    }
    return unused;
}

static struct object *replaced(int i)
{
    struct object *made = make(i); /* plain writes, before it is linked */
    return (struct object *)still_exchange(&shared, made);
}

static void readers_and_writers(void)
{
    shared = make(0);
    pthread_t threads[THREADS + 2];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, reads, (void *)i) == 0);
    for (int i = THREADS; i < THREADS + 2; i++)
        CHECK(pthread_create(&threads[i], NULL, comes_and_goes, NULL) == 0);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    struct still_background *background = still_background_new(domain, NULL);
    struct still_queue *queue = still_queue_new(domain), *started = still_queue_new(domain);
    CHECK(still_queue_start(started, NULL) == 0);
    for (int i = 1; i <= ROUNDS; i++) {
        struct object *old = replaced(i);
        old->callback.callback.words_[0] = NULL; /* the thread that unlinked it may write to it */
        switch (i % 6) {
        case 0: CHECK(still_retire(reclaimer, old, sizeof *old, destroy, NULL) == 0); break;
        case 1: CHECK(still_submit(background, old, sizeof *old, destroy, NULL) == 0); break;
        case 2: CHECK(still_call_object(queue, &old->callback, old, called) == 0); break;
        case 3: CHECK(still_call_object(started, &old->callback, old, called) == 0); break;
        case 4: CHECK(still_domain_retire(domain, old, sizeof *old, destroy, NULL) == 0); break;
        default:
            /* Grace periods wait only for regions. A barrier also waits for protected loads. */
            CHECK(still_domain_retire(domain, old, sizeof *old, destroy, NULL) == 0);
            CHECK(still_barrier(domain, STILL_FOREVER) == 0);
        }
        still_poll(reclaimer, 16);
        still_queue_poll(queue, 16);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS + 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && still_reclaimer_free(reclaimer) == 0);
    CHECK(still_background_free(background, STILL_FOREVER) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && still_queue_free(queue) == 0);
    CHECK(still_queue_barrier(started, STILL_FOREVER) == 0 && still_queue_free(started) == 0);
    CHECK(still_barrier(domain, STILL_FOREVER) == 0);
    free(shared);
}

/* One thread reads in a region, and signals by a relaxed store that it has read. The other thread waits for a grace period, or does not,
 * and then writes. */
static int step;

static void *reads_once(void *kind)
{
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    if (kind == NULL) {
        CHECK(still_offline(qsbr) == 0);
        still_pin(reader);
    }
    use((struct object *)still_load(&shared));
    __atomic_store_n(&step, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) == 1) {
    }
    if (kind == NULL)
        still_unpin(reader);
    if (defect == 3)
        use((struct object *)shared); /* after its region */
    __atomic_store_n(&step, 3, __ATOMIC_RELAXED);
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) == 3)
        if (kind != NULL)
            still_quiescent(qsbr);
    CHECK(still_qsbr_free(qsbr) == 0 && still_reader_free(reader) == 0);
    return NULL;
}

static void waits_once(void *kind, int (*wait)(void))
{
    shared = make(1);
    step = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_once, kind) == 0);
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) == 0) {
    }
    __atomic_store_n(&step, 2, __ATOMIC_RELAXED);
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) != 3) {
    }
    CHECK(wait() == 0);
    shared->value = 2; /* no thread reads it any more */
    free(shared);
    __atomic_store_n(&step, 4, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
}

static int by_synchronize(void)
{
    return still_synchronize(domain, STILL_FOREVER);
}

static int by_check(void)
{
    uint64_t token = still_start(domain);
    while (still_check(domain, token) == 0) {
    }
    return still_check(domain, token) - 1;
}

static int not_at_all(void)
{
    return 0;
}

/* Tables: a value is written before it is inserted, and read by a thread that finds it. */
static struct still_table *table;
static int racing;

static void *finds(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    for (uint64_t key = 0; key < ROUNDS; key++) {
        void *value;
        still_pin(reader);
        while (still_table_get(table, reader, &key, &value) == 0) {
        }
        CHECK(((struct object *)value)->value == (int)key);
        uint64_t hits;
        CHECK(still_table_get_many(table, reader, &key, 1, &value, &hits) == 1);
        CHECK(((struct object *)value)->value == (int)key);
        still_unpin(reader);
    }
    racing++; /* a plain access */
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

static void tables(void)
{
    table = still_table_new(domain, 8, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, finds, NULL) == 0);
    static struct object *all[ROUNDS];
    for (uint64_t key = 0; key < ROUNDS; key++) {
        all[key] = make(-1);
        if (defect != 4)
            all[key]->value = (int)key;
        CHECK(still_table_insert(table, &key, all[key], NULL) == 0);
        if (defect == 4)
            all[key]->value = (int)key; /* after it was inserted */
    }
    if (defect == 5)
        racing++; /* a value in the table orders nothing but accesses to that value */
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++)
        free(all[i]);
    CHECK(still_table_free(table) == 0);
}

/* Pools: one thread gets the objects that another has put back. */
static struct still_pool *pool;

static void *gets_and_puts(void *unused)
{
    struct still_local *local = still_local_new(pool);
    void *objects[16];
    while (__atomic_load_n(&step, __ATOMIC_RELAXED) == 0) {
    }
    for (int i = 0; i < ROUNDS; i++) {
        int count = 0;
        while (count < 16 && (objects[count] = still_local_get(local)) != NULL)
            *(int *)objects[count++] = i;
        CHECK(still_local_put_many(local, objects, (size_t)count) == 0);
        if (still_local_get_many(local, objects, 4) == 0) {
            for (int k = 0; k < 4; k++)
                *(int *)objects[k] = k;
            for (int k = 0; k < 4; k++)
                CHECK(still_local_put(local, objects[k]) == 0);
        }
        struct still_block block;
        if (still_local_get_block(local, &block) == 0) {
            for (size_t k = 0; k < block.objects; k++)
                *(int *)(void *)((char *)block.start + k * block.stride) = i;
            CHECK(still_local_put_block(local, &block) == 0);
        }
    }
    CHECK(still_local_free(local) == 0);
    return unused;
}

static void pools(void)
{
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;
    options.cache = STILL_ALL; /* none */
    pool = still_pool_new(16, 64, 64, &options);
    pthread_t threads[THREADS];
    step = 0;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, gets_and_puts, NULL) == 0);
    struct still_local *local = still_local_new(pool);
    int *object = (int *)still_local_get(local);
    *object = 7;
    CHECK(still_local_put(local, object) == 0 && still_local_free(local) == 0);
    if (defect == 6)
        *object = 8; /* another thread has it now */
    __atomic_store_n(&step, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(still_pool_free(pool) == 0);
}

/* Callbacks and destructors write plain memory, which this thread reads after a barrier. */
static int plain;

static void writes(struct still_callback *callback) STILL_NOEXCEPT
{
    (void)callback;
    plain++;
}

static void destroys(void *object, void *context) STILL_NOEXCEPT
{
    (*(int *)context)++;
    free(object);
}

static void barriers(void)
{
    struct still_queue *queue = still_queue_new(domain);
    CHECK(still_queue_start(queue, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct still_callback callback;
        CHECK(still_call(queue, &callback, writes) == 0);
        if (defect == 7)
            plain++; /* before the barrier */
        CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0);
        plain++;
    }
    CHECK(still_queue_pause(queue) == 0);
    plain++;
    CHECK(still_queue_resume(queue) == 0);
    CHECK(still_queue_free(queue) == 0);
    int count = 0;
    struct still_background *background = still_background_new(domain, NULL);
    for (int i = 0; i < 10; i++) {
        CHECK(still_domain_retire(domain, malloc(8), 8, destroys, &count) == 0);
        CHECK(still_barrier(domain, STILL_FOREVER) == 0 && count == i + 1);
    }
    CHECK(still_background_free(background, STILL_FOREVER) == 0);
}

int main(int argc, char **argv)
{
    defect = argc > 1 ? atoi(argv[1]) : 0;
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    if (argc > 2)
        options.mode = STILL_MODE_SYMMETRIC;
    domain = still_domain_new(&options);
    if (defect == 0)
        readers_and_writers();
    if (defect == 0 || defect == 3) {
        waits_once(NULL, by_synchronize);
        waits_once(NULL, by_check);
    }
    if (defect == 0) {
        waits_once(&defect, by_synchronize);
        waits_once(&defect, by_check);
    }
    if (defect == 1 || defect == 2)
        waits_once(defect == 1 ? NULL : &defect, not_at_all);
    if (defect == 0 || defect == 4 || defect == 5)
        tables();
    if (defect == 0 || defect == 6)
        pools();
    if (defect == 0 || defect == 7)
        barriers();
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
