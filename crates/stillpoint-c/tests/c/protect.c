/* Lookups in tables that protect one object, without a region. */
#include "check.h"

#include <pthread.h>
#include <sched.h>

static struct still_domain *domain;

static const void *key_of(uint64_t number, size_t bytes)
{
    static __thread unsigned char key[1000];
    memset(key, 7, bytes);
    memcpy(key, &number, bytes < sizeof number ? bytes : sizeof number);
    return key;
}

static int holds_nothing(const struct still_protected *held)
{
    return held->object == NULL && held->slot_ == NULL;
}

static int value_of(const struct still_protected *held)
{
    return ((const struct object *)held->object)->value;
}

/* Something that a failed call has to overwrite. */
static struct still_protected junk(void)
{
    struct still_protected held = { &domain, &domain };
    return held;
}

static void free_values(struct still_table *table, uint64_t keys, size_t bytes)
{
    for (uint64_t key = 0; key < keys; key++) {
        void *old;
        if (still_table_remove(table, key_of(key, bytes), &old) == 1)
            free(old);
    }
    CHECK(still_table_len(table) == 0 && still_table_free(table) == 0);
}

/* Polls until `count` objects are pending, which nobody may free. */
static void settles(struct still_reclaimer *reclaimer, ssize_t count)
{
    for (int turn = 0; turn < 1000 && still_pending(reclaimer) != count; turn++)
        CHECK(still_poll(reclaimer, STILL_ALL) >= 0 && sched_yield() == 0);
    CHECK(still_pending(reclaimer) == count);
    CHECK(still_poll(reclaimer, STILL_ALL) == 0);
}

static void survives(size_t bytes, still_hash_fn *hash, void *context)
{
    enum { MANY = 100 };
    struct still_table_options options = STILL_TABLE_OPTIONS_INIT;
    options.hash = hash;
    options.context = context;
    struct still_table *table = still_table_new(domain, bytes, &options);
    struct still_reader *reader = still_reader_new(domain);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    struct still_protected held = junk();
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK(still_table_protect(table, reader, key_of(i, bytes), &held) == 0 && holds_nothing(&held));
        CHECK(still_table_insert(table, key_of(i, bytes), make((int)i + 1), NULL) == 0);
        CHECK(still_table_protect(table, reader, key_of(i, bytes), &held) == 1 && value_of(&held) == (int)i + 1);
        still_release(held);
    }
    /* Of a hundred objects that are removed and retired, one is held; and another one after it was replaced. */
    struct still_protected removed, replaced;
    CHECK(still_table_protect(table, reader, key_of(3, bytes), &removed) == 1);
    CHECK(still_table_protect(table, reader, key_of(4, bytes), &replaced) == 1);
    CHECK(!still_is_pinned(reader));
    int before = destroyed();
    void *old;
    CHECK(still_table_insert(table, key_of(4, bytes), make(1000), &old) == 1 && old == replaced.object);
    CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK(still_table_remove(table, key_of(i, bytes), &old) == 1);
        CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
    }
    settles(reclaimer, 2);
    CHECK(destroyed() == before + MANY - 1 && value_of(&removed) == 4 && value_of(&replaced) == 5);
    still_release(removed);
    settles(reclaimer, 1);
    still_release(replaced);
    settles(reclaimer, 0);
    CHECK(destroyed() == before + MANY + 1);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reader_free(reader) == 0 && still_table_free(table) == 0);
}

static uint64_t poor_hash(const void *key, size_t bytes, void *context) STILL_NOEXCEPT
{
    CHECK(bytes == *(size_t *)context);
    return *(const unsigned char *)key % 16 * UINT64_C(0x9e3779b97f4a7c15);
}

/* A hash function that uses the reader of the lookup. */
static struct still_reader *looked_up_by;
static struct still_table *inner;

static uint64_t busy_hash(const void *key, size_t bytes, void *context) STILL_NOEXCEPT
{
    CHECK(context == NULL && bytes == 8);
    if (looked_up_by != NULL) {
        REFUSED(still_reader_free(looked_up_by), -EBUSY, "in use");
        CHECK(still_reader_offline(looked_up_by) >= 0);
        struct still_protected held;
        CHECK(still_table_protect(inner, looked_up_by, key_of(1, 8), &held) == 1 && value_of(&held) == 1);
        still_release(held);
        CHECK(still_reader_offline(looked_up_by) >= 0);
    }
    return *(const unsigned char *)key;
}

static void hash_functions_may_read(void)
{
    inner = still_table_new(domain, 8, NULL);
    struct still_table_options options = STILL_TABLE_OPTIONS_INIT;
    options.hash = busy_hash;
    struct still_table *table = still_table_new(domain, 8, &options);
    CHECK(still_table_insert(inner, key_of(1, 8), make(1), NULL) == 0);
    CHECK(still_table_insert(table, key_of(2, 8), make(2), NULL) == 0);
    looked_up_by = still_reader_new(domain);
    struct still_protected held[2];
    CHECK(still_table_protect(inner, looked_up_by, key_of(0, 8), &held[0]) == 0);
    unsigned char keys[16];
    memcpy(keys, key_of(2, 8), 8);
    memcpy(keys + 8, key_of(3, 8), 8);
    CHECK(still_table_protect(table, looked_up_by, keys, &held[0]) == 1 && value_of(&held[0]) == 2);
    still_release(held[0]);
    uint64_t hits;
    CHECK(still_table_protect_many(table, looked_up_by, keys, 2, held, &hits) == 1 && hits == 1);
    CHECK(value_of(&held[0]) == 2 && holds_nothing(&held[1]));
    still_release(held[0]);
    CHECK(still_reader_free(looked_up_by) == 0);
    looked_up_by = NULL;
    free_values(inner, 2, 8);
    free_values(table, 3, 8);
}

static void *looks_elsewhere(void *reader)
{
    struct still_table *table = still_table_new(domain, 8, NULL);
    struct still_protected held = junk();
    REFUSED(still_table_protect(table, (struct still_reader *)reader, key_of(1, 8), &held), -EPERM, "another thread");
    CHECK(holds_nothing(&held) && still_table_free(table) == 0);
    return NULL;
}

static void refusals(void)
{
    struct still_table *table = still_table_new(domain, 8, NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    struct still_domain *other = still_domain_new(NULL);
    struct still_reader *foreign = still_reader_new(other);
    struct still_protected held[65];
    for (int i = 0; i < 65; i++)
        held[i] = junk();
    REFUSED(still_table_protect(table, foreign, key_of(1, 8), &held[0]), -EXDEV, "another domain");
    CHECK(holds_nothing(&held[0]));
    still_release(held[0]);
    REFUSED(still_table_protect(table, NULL, key_of(1, 8), &held[1]), -EINVAL, "NULL");
    REFUSED(still_table_protect(table, (struct still_reader *)(void *)qsbr, key_of(1, 8), &held[2]), -EINVAL, "another kind");
    REFUSED(still_table_protect(table, reader, NULL, &held[3]), -EINVAL, "key");
    REFUSED(still_table_protect(table, reader, key_of(1, 8), NULL), -EINVAL, "answer");
    REFUSED(still_table_protect(NULL, reader, key_of(1, 8), &held[4]), -EINVAL, "NULL");
    for (int i = 1; i <= 4; i++)
        CHECK(holds_nothing(&held[i]));
    uint64_t hits = 7;
    REFUSED(still_table_protect_many(table, reader, held, 65, held, &hits), -EINVAL, "64");
    REFUSED(still_table_protect_many(table, reader, held, 64, NULL, &hits), -EINVAL, "answer");
    REFUSED(still_table_protect_many(table, reader, held, 64, held, NULL), -EINVAL, "answer");
    CHECK(!holds_nothing(&held[64]));
    REFUSED(still_table_protect_many(table, reader, NULL, 64, held, &hits), -EINVAL, "key");
    REFUSED(still_table_protect_many(table, foreign, held, 64, held, &hits), -EXDEV, "another domain");
    CHECK(hits == 7 && holds_nothing(&held[63]) && !holds_nothing(&held[64]));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, looks_elsewhere, reader) == 0 && pthread_join(thread, NULL) == 0);

    /* NULL is a value. There is nothing to release. */
    CHECK(still_table_insert(table, key_of(1, 8), NULL, NULL) == 0);
    held[0] = junk();
    CHECK(still_table_protect(table, reader, key_of(1, 8), &held[0]) == 1 && holds_nothing(&held[0]));
    CHECK(still_table_free(table) == 0);
    REFUSED(still_table_protect(table, reader, key_of(1, 8), &held[0]), -EBADF, "freed");
    CHECK(still_reader_free(foreign) == 0 && still_domain_free(other) == 0);
    CHECK(still_reader_free(reader) == 0 && still_qsbr_free(qsbr) == 0);
}

static void destroy_tagged(void *object, void *context) STILL_NOEXCEPT
{
    destroy((char *)object - 1, context);
}

/* A value with a tag is retired with it. */
static void tags(void)
{
    struct still_table *table = still_table_new(domain, 8, NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    char *tagged = (char *)(void *)make(1) + 1;
    CHECK(still_table_insert(table, key_of(1, 8), tagged, NULL) == 0);
    struct still_protected held;
    CHECK(still_table_protect(table, reader, key_of(1, 8), &held) == 1 && held.object == tagged);
    void *old;
    CHECK(still_table_remove(table, key_of(1, 8), &old) == 1 && old == tagged);
    CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy_tagged, NULL) == 0);
    settles(reclaimer, 1);
    still_release(held);
    settles(reclaimer, 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reader_free(reader) == 0 && still_table_free(table) == 0);
}

/* A reader holds several objects, released in any order, beside those of still_protect and within a region. */
static void several(void)
{
    enum { MANY = 40 };
    struct still_table *table = still_table_new(domain, 16, NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(still_table_insert(table, key_of(i, 16), make((int)i), NULL) == 0);
    struct object *link = make(77);
    for (int turn = 0; turn < 3; turn++) {
        struct still_protected held[MANY], beside = still_protect(reader, &link);
        if (turn == 1)
            still_pin(reader);
        for (uint64_t i = 0; i < MANY; i++)
            CHECK(still_table_protect(table, reader, key_of(i, 16), &held[i]) == 1 && value_of(&held[i]) == (int)i);
        if (turn == 1)
            still_unpin(reader);
        for (uint64_t i = 0; i < MANY; i++) {
            void *old;
            CHECK(still_table_insert(table, key_of(i, 16), make((int)i), &old) == 1 && old == held[i].object);
            CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
        }
        settles(reclaimer, MANY);
        CHECK(((struct object *)beside.object)->value == 77);
        if (turn == 2)
            still_release(beside);
        for (int i = 0; i < MANY; i++) {
            int next = i * 7 % MANY;
            CHECK(value_of(&held[next]) == next);
            still_release(held[next]);
            settles(reclaimer, MANY - 1 - i);
        }
        if (turn != 2)
            still_release(beside);
    }
    /* The reader's end releases what it holds. */
    struct still_protected held;
    CHECK(still_table_protect(table, reader, key_of(1, 16), &held) == 1);
    void *old;
    CHECK(still_table_remove(table, key_of(1, 16), &old) == 1);
    CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
    settles(reclaimer, 1);
    CHECK(still_reader_free(reader) == 0);
    settles(reclaimer, 0);
    free(link);
    free_values(table, MANY, 16);
    CHECK(still_reclaimer_free(reclaimer) == 0);
}

/* Bursts of all lengths, with present, absent and repeated keys, some of whose values are NULL. */
static void bursts(size_t bytes)
{
    enum { MANY = 100 };
    struct still_table *table = still_table_new(domain, bytes, NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(still_table_insert(table, key_of(i, bytes), i == 5 ? NULL : make((int)i), NULL) == 0);
    for (size_t count = 0; count <= 64; count++) {
        static unsigned char keys[64 * 1000];
        struct still_protected held[64];
        uint64_t hits = 99;
        int there = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t number = i % 3 == 0 ? MANY + i : i % 7 == 0 ? 1 : i;
            held[i] = junk();
            memcpy(keys + i * bytes, key_of(number, bytes), bytes);
            there += number < MANY;
        }
        CHECK(still_table_protect_many(table, reader, keys, count, held, &hits) == there);
        CHECK(count == 64 || hits >> count == 0);
        for (size_t i = 0; i < count; i++) {
            int is_there = i % 3 != 0;
            uint64_t number = i % 7 == 0 ? 1 : i;
            CHECK((int)(hits >> i & 1) == is_there);
            CHECK(is_there && number != 5 ? value_of(&held[i]) == (int)number : holds_nothing(&held[i]));
        }
        if (count == 64) {
            for (uint64_t i = 0; i < MANY; i++) {
                void *old;
                CHECK(still_table_remove(table, key_of(i, bytes), &old) == 1);
                if (old != NULL)
                    CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
            }
            for (size_t i = 0; i < count; i++)
                CHECK(held[i].object == NULL || value_of(&held[i]) >= 0);
        }
        for (size_t i = 0; i < count; i++)
            still_release(held[i]);
    }
    settles(reclaimer, 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reader_free(reader) == 0 && still_table_free(table) == 0);
}

/* Callbacks of objects wait for what a lookup holds. Those of still_call do not, and some mistakes are found. */
static void callbacks(void)
{
    struct still_table *table = still_table_new(domain, 8, NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_queue *queue = still_queue_new(domain);
    CHECK(still_reader_offline(reader) == 0);
    CHECK(still_table_insert(table, key_of(1, 8), make(1), NULL) == 0);
    struct still_protected held;
    CHECK(still_table_protect(table, reader, key_of(1, 8), &held) == 1);
    CHECK(still_reader_offline(reader) == 1);
    void *old;
    CHECK(still_table_remove(table, key_of(1, 8), &old) == 1);
    struct object *object = (struct object *)old;
    int before = destroyed();
#ifdef STILL_CHECKED
    REFUSED(still_call(queue, &object->callback.callback, called), -EINVAL, "still_call_object");
#endif
    CHECK(still_call_object(queue, &object->callback, object, called) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == before && value_of(&held) == 1);
    still_release(held);
    while (destroyed() == before)
        CHECK(still_queue_poll(queue, STILL_ALL) >= 0);
    /* What nobody protects any more may go to still_call, where no reader protects such objects. */
    object = make(2);
    CHECK(still_call(queue, &object->callback.callback, called) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == before + 2);
    CHECK(still_queue_free(queue) == 0 && still_reader_free(reader) == 0 && still_table_free(table) == 0);
}

/* Readers look up while a writer removes, replaces and retires, and while the table grows and begins anew. */
#ifndef GROWTHS
#define GROWTHS 20
#endif
enum { KEYS = 3000, ALWAYS = 16, BURST = 8 };
static struct still_table *shared;
static int stop;
static uint64_t looked_up;

static void *looks(void *with_bursts)
{
    struct still_reader *reader = still_reader_new(domain);
    uint64_t count = 0;
    /* Once at least: under Valgrind, the writer may be done before this thread begins. */
    for (uint64_t i = 0; i == 0 || !__atomic_load_n(&stop, __ATOMIC_RELAXED); i += BURST) {
        struct still_protected held[BURST];
        uint64_t keys[BURST], hits = 0;
        for (uint64_t j = 0; j < BURST; j++)
            keys[j] = (j == 0 ? i % ALWAYS : (i + j) * 31 % KEYS);
        struct still_table *table = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
        if (with_bursts != NULL) {
            CHECK(still_table_protect_many(table, reader, keys, BURST, held, &hits) >= 1);
        } else {
            for (uint64_t j = 0; j < BURST; j++)
                hits |= (uint64_t)still_table_protect(table, reader, &keys[j], &held[j]) << j;
        }
        CHECK(hits & 1); /* it is in the table throughout, though it is replaced and moved */
        if (i % 64 == 0)
            sched_yield();
        for (int j = BURST - 1; j >= 0; j--) {
            if (hits >> j & 1) {
                CHECK(value_of(&held[j]) == (int)keys[j] + 1);
                count++;
            }
            still_release(held[j]);
        }
    }
    __atomic_add_fetch(&looked_up, count, __ATOMIC_RELAXED);
    CHECK(still_reader_free(reader) == 0);
    return NULL;
}

static void retires(struct still_reclaimer *reclaimer, void *old)
{
    CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
    still_poll(reclaimer, STILL_ALL);
}

static void beside_growth(void)
{
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    struct still_table *tables[GROWTHS];
    int before = destroyed(), made = 0;
    pthread_t threads[2];
    for (int round = 0; round < GROWTHS; round++) {
        tables[round] = still_table_new(domain, 8, NULL);
        for (uint64_t key = 0; key < ALWAYS; key++, made++)
            CHECK(still_table_insert(tables[round], key_of(key, 8), make((int)key + 1), NULL) == 0);
        __atomic_store_n(&shared, tables[round], __ATOMIC_RELEASE);
        for (int i = 0; round == 0 && i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, looks, i == 0 ? &stop : NULL) == 0);
        for (uint64_t key = ALWAYS; key < KEYS; key++) {
            void *old = NULL;
            CHECK(still_table_insert(tables[round], key_of(key, 8), make((int)key + 1), NULL) == 0);
            CHECK(still_table_insert(tables[round], key_of(key % ALWAYS, 8), make((int)(key % ALWAYS) + 1), &old) == 1);
            made += 2;
            retires(reclaimer, old);
            if (key > 500 && key % 3 != 0) {
                CHECK(still_table_remove(tables[round], key_of(key - 480, 8), &old) == 1);
                retires(reclaimer, old);
            }
        }
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int round = 0; round < GROWTHS; round++) {
        for (uint64_t key = 0; key < KEYS; key++) {
            void *old;
            if (still_table_remove(tables[round], key_of(key, 8), &old) == 1)
                retires(reclaimer, old);
        }
        CHECK(still_table_len(tables[round]) == 0 && still_table_free(tables[round]) == 0);
    }
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && still_reclaimer_free(reclaimer) == 0);
    CHECK(destroyed() == before + made && looked_up > 0);
}

int main(void)
{
    domain = still_domain_new(NULL);
    size_t sizes[] = { 1, 4, 5, 8, 13, 16, 40, 1000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        survives(sizes[i], NULL, NULL);
        survives(sizes[i], poor_hash, &sizes[i]);
        if (sizes[i] > 1)
            bursts(sizes[i]);
    }
    hash_functions_may_read();
    refusals();
    tags();
    several();
    callbacks();
    beside_growth();
    CHECK(still_domain_free(domain) == 0);

    /* Where readers issue full fences. */
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = STILL_MODE_SYMMETRIC;
    domain = still_domain_new(&options);
    survives(16, NULL, NULL);
    bursts(16);
    several();
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
