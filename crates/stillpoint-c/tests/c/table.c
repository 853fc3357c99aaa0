/* Tables with keys of each size, read in regions of both kinds of readers while others write. */
#include "check.h"

#include <pthread.h>

static struct still_domain *domain;

/* A key of any size, from a number. */
static const void *key_of(uint64_t number, size_t bytes)
{
    static __thread unsigned char key[1000];
    memset(key, 7, bytes);
    memcpy(key, &number, bytes < sizeof number ? bytes : sizeof number);
    if (bytes > 8)
        key[bytes - 1] = (unsigned char)number;
    return key;
}

static void *word(uint64_t number)
{
    return (void *)(uintptr_t)(number * 8 + 1);
}

struct visits {
    uint64_t sum, calls, until;
};

static int visit(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    struct visits *visit = (struct visits *)context;
    CHECK(key != NULL);
    visit->sum += (uint64_t)(uintptr_t)value / 8;
    return ++visit->calls == visit->until ? 42 : 0;
}

static void size(size_t bytes, still_hash_fn *hash, void *context)
{
    enum { MANY = 200 }; /* below 256, so that keys of one byte differ */
    struct still_table_options options = STILL_TABLE_OPTIONS_INIT;
    options.hash = hash;
    options.context = context;
    struct still_table *table = still_table_new(domain, bytes, &options);
    CHECK(table != NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    void *value = NULL;
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK(still_table_get(table, reader, key_of(i, bytes), &value) == 0);
        CHECK(still_table_insert(table, key_of(i, bytes), word(i), &value) == 0);
        CHECK(still_table_get(table, reader, key_of(i, bytes), &value) == 1 && value == word(i));
        CHECK(still_table_get(table, qsbr, key_of(i, bytes), NULL) == 1);
    }
    CHECK(still_table_len(table) == MANY);

    /* Bursts of all lengths, with present and missing keys. */
    for (size_t count = 0; count <= 64; count++) {
        static unsigned char keys[64 * 1000];
        void *values[64];
        uint64_t hits = 0;
        memset(values, 0, sizeof values);
        int there = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t number = i % 3 == 0 && bytes > 1 ? MANY + i : i;
            memcpy(keys + i * bytes, key_of(number, bytes), bytes);
            there += number < MANY;
        }
        CHECK(still_table_get_many(table, count % 2 ? (void *)reader : (void *)qsbr, keys, count, values, &hits) == there);
        for (size_t i = 0; i < count; i++) {
            int is_there = !(i % 3 == 0 && bytes > 1);
            CHECK((int)(hits >> i & 1) == is_there && values[i] == (is_there ? word(i) : NULL));
        }
        CHECK(count == 64 || hits >> count == 0);
    }

    CHECK(still_table_insert(table, key_of(1, bytes), word(1000), &value) == 1 && value == word(1));
    CHECK(still_table_insert(table, key_of(1, bytes), word(1), NULL) == 1);
    REFUSED(still_table_add(table, reader, key_of(1, bytes), word(9), &value), -EEXIST, "this key");
    CHECK(value == word(1));
    CHECK(still_table_remove(table, key_of(1, bytes), &value) == 1 && value == word(1));
    CHECK(still_table_remove(table, key_of(1, bytes), &value) == 0);
    CHECK(still_table_add(table, qsbr, key_of(1, bytes), word(1), NULL) == 0);
    CHECK(still_table_remove_if(table, reader, key_of(1, bytes), word(2)) == 0);
    CHECK(still_table_get(table, reader, key_of(1, bytes), &value) == 1 && value == word(1));
    CHECK(still_table_remove_if(table, qsbr, key_of(1, bytes), word(1)) == 1);
    CHECK(still_table_remove_if(table, reader, key_of(1, bytes), word(1)) == 0);
    CHECK(still_table_insert(table, key_of(1, bytes), word(1), NULL) == 0);

    struct visits all = { 0, 0, 0 }, some = { 0, 0, 3 };
    CHECK(still_table_each(table, reader, visit, &all) == 0);
    CHECK(all.calls == MANY && all.sum == (uint64_t)MANY * (MANY - 1) / 2);
    CHECK(still_table_each(table, qsbr, visit, &some) == 42 && some.calls == 3);

    CHECK(still_qsbr_free(qsbr) == 0 && still_reader_free(reader) == 0 && still_table_free(table) == 0);
}

static int hashed;

static uint64_t poor_hash(const void *key, size_t bytes, void *context) STILL_NOEXCEPT
{
    CHECK(bytes == *(size_t *)context);
    hashed++;
    return *(const unsigned char *)key % 16 * UINT64_C(0x9e3779b97f4a7c15);
}

static void *reads_elsewhere(void *reader)
{
    struct still_table *table = still_table_new(domain, 8, NULL);
    REFUSED(still_table_get(table, reader, key_of(1, 8), NULL), -EPERM, "another thread");
    CHECK(still_table_free(table) == 0);
    return NULL;
}

static void refusals(void)
{
    CHECK(still_table_new(domain, 0, NULL) == NULL && errno == EINVAL);
    CHECK(still_table_new(domain, 1 << 20, NULL) == NULL && errno == EINVAL);
    CHECK(still_table_new(NULL, 8, NULL) == NULL && errno == EINVAL);
    struct still_table_options options = STILL_TABLE_OPTIONS_INIT;
    options.max_len = 2;
    struct still_table *table = still_table_new(domain, 8, &options);
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    struct still_domain *other = still_domain_new(NULL);
    struct still_reader *foreign = still_reader_new(other);
    REFUSED(still_table_get(table, foreign, key_of(1, 8), NULL), -EXDEV, "another domain");
    REFUSED(still_table_get(table, NULL, key_of(1, 8), NULL), -EINVAL, "NULL");
    REFUSED(still_table_get(table, domain, key_of(1, 8), NULL), -EINVAL, "another kind");
    REFUSED(still_table_get(table, reader, NULL, NULL), -EINVAL, "key");
    REFUSED(still_table_each(table, reader, NULL, NULL), -EINVAL, "function");
    uint64_t hits;
    void *values[65];
    REFUSED(still_table_get_many(table, reader, values, 65, values, &hits), -EINVAL, "64");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_elsewhere, reader) == 0 && pthread_join(thread, NULL) == 0);
    /* Of QSBR readers, most lookups go a shorter way. */
    struct still_qsbr *far = still_qsbr_new(other);
    CHECK(pthread_create(&thread, NULL, reads_elsewhere, qsbr) == 0 && pthread_join(thread, NULL) == 0);
    REFUSED(still_table_get(table, far, key_of(1, 8), NULL), -EXDEV, "another domain");
    REFUSED(still_table_get(table, qsbr, NULL, NULL), -EINVAL, "key");
    REFUSED(still_table_get(NULL, qsbr, key_of(1, 8), NULL), -EINVAL, "NULL");
    CHECK(still_table_get(table, (char *)qsbr + 1, key_of(1, 8), NULL) == -EINVAL);
    CHECK(still_offline(qsbr) == 0);
    REFUSED(still_table_get(table, qsbr, key_of(1, 8), NULL), -EINVAL, "offline");
    CHECK(still_online(qsbr) == 0);
    CHECK(still_table_insert(table, key_of(1, 8), NULL, NULL) == 0); /* NULL is a value */
    CHECK(still_table_insert(table, key_of(2, 8), NULL, NULL) == 0);
    REFUSED(still_table_insert(table, key_of(3, 8), NULL, NULL), -ENOSPC, "max_len");
    REFUSED(still_table_add(table, reader, key_of(3, 8), NULL, NULL), -ENOSPC, "max_len");
    CHECK(still_table_len(table) == 2);
    CHECK(still_table_get(table, qsbr, key_of(1, 8), NULL) == 1);
    REFUSED(still_table_get(table, far, key_of(1, 8), NULL), -EXDEV, "another domain");
    CHECK(still_qsbr_free(far) == 0);
    REFUSED(still_table_get(table, far, key_of(1, 8), NULL), -EBADF, "freed");
    CHECK(still_table_free(table) == 0);
    REFUSED(still_table_len(table), -EBADF, "freed");
    REFUSED(still_table_get(table, qsbr, key_of(1, 8), NULL), -EBADF, "freed");
    CHECK(still_reader_free(foreign) == 0 && still_domain_free(other) == 0);
    CHECK(still_reader_free(reader) == 0 && still_qsbr_free(qsbr) == 0);
}

/* A walk, and what its function does to the reader. */
struct walk {
    struct still_table *table;
    struct still_reader *reader;
    struct still_qsbr *qsbr;
    void *held;
};

static int pins_one(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    struct walk *walk = (struct walk *)context;
    CHECK(key != NULL);
    still_pin(walk->reader); /* longer than the walk */
    walk->held = value;
    return 1;
}

static int unpins(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    struct walk *walk = (struct walk *)context;
    CHECK(key != NULL && value != NULL);
    if (walk->held == NULL)
        still_unpin(walk->reader); /* the caller's pin: the walk has its own region */
    walk->held = value;
    CHECK(still_is_pinned(walk->reader));
    return 0;
}

static int frees(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    struct walk *walk = (struct walk *)context;
    CHECK(key != NULL && value != NULL);
    REFUSED(still_reader_free(walk->reader), -EBUSY, "in use");
    /* The function may read by the same readers. */
    struct visits inner = { 0, 0, 0 };
    CHECK(still_table_get(walk->table, walk->reader, key, NULL) == 1);
    CHECK(still_table_each(walk->table, walk->qsbr, visit, &inner) == 0 && inner.calls == 10);
    return 0;
}

static int goes_offline(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    struct walk *walk = (struct walk *)context;
    CHECK(key != NULL && value != NULL);
    REFUSED(still_qsbr_free(walk->qsbr), -EBUSY, "in use");
    REFUSED(still_offline(walk->qsbr), -EBUSY, "in use");
    REFUSED(still_qsbr_synchronize(walk->qsbr, STILL_FOREVER), -EBUSY, "in use");
    return 0;
}

static void walks(void)
{
    struct walk walk = { still_table_new(domain, 13, NULL), still_reader_new(domain), still_qsbr_new(domain), NULL };
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    CHECK(still_offline(walk.qsbr) == 0);
    for (uint64_t i = 0; i < 10; i++)
        CHECK(still_table_insert(walk.table, key_of(i, 13), make(1), NULL) == 0);

    CHECK(still_table_each(walk.table, walk.reader, pins_one, &walk) == 1);
    CHECK(still_is_pinned(walk.reader));
    int before = destroyed();
    for (uint64_t i = 0; i < 10; i++) {
        void *old;
        CHECK(still_table_remove(walk.table, key_of(i, 13), &old) == 1);
        CHECK(still_retire(reclaimer, old, 1, destroy, NULL) == 0);
        CHECK(still_table_insert(walk.table, key_of(i, 13), make(2), NULL) == 0);
    }
    REFUSED(still_flush(reclaimer, 0), -EDEADLK, "in a region of domain");
    CHECK(destroyed() == before && ((struct object *)walk.held)->value == 1);
    still_unpin(walk.reader);
    CHECK(!still_is_pinned(walk.reader));
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && destroyed() == before + 10);

    walk.held = NULL;
    still_pin(walk.reader);
    CHECK(still_table_each(walk.table, walk.reader, unpins, &walk) == 0);
    CHECK(!still_is_pinned(walk.reader));

    CHECK(still_online(walk.qsbr) == 0);
    CHECK(still_table_each(walk.table, walk.reader, frees, &walk) == 0);
    CHECK(still_table_each(walk.table, walk.qsbr, goes_offline, &walk) == 0);
    CHECK(still_qsbr_free(walk.qsbr) == 0);
    for (uint64_t i = 0; i < 10; i++) {
        void *old;
        CHECK(still_table_remove(walk.table, key_of(i, 13), &old) == 1);
        free(old);
    }
    CHECK(still_reader_free(walk.reader) == 0 && still_table_free(walk.table) == 0 && still_reclaimer_free(reclaimer) == 0);
}

/* The program retires replaced values, while readers use them in regions. */
enum { KEYS = 64, ROUNDS = 20000 };
static struct still_table *shared;
static int stop;

static void *looks(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        still_pin(reader);
        void *value;
        if (still_table_get(shared, reader, key_of(i % KEYS, 8), &value) == 1)
            CHECK(((struct object *)value)->value == (int)(i % KEYS) + 1);
        still_unpin(reader);
    }
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

static void beside_writers(void)
{
    shared = still_table_new(domain, 8, NULL);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, looks, NULL) == 0);
    int before = destroyed(), retired = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t key = (uint64_t)i * 31 % KEYS;
        void *old = NULL;
        int was_there = i % 5 == 0 ? still_table_remove(shared, key_of(key, 8), &old)
                                   : still_table_insert(shared, key_of(key, 8), make((int)key + 1), &old);
        CHECK(was_there >= 0);
        if (was_there) {
            CHECK(still_retire(reclaimer, old, sizeof(struct object), destroy, NULL) == 0);
            retired++;
        }
        still_poll(reclaimer, STILL_ALL);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && destroyed() == before + retired);
    for (uint64_t key = 0; key < KEYS; key++) {
        void *old;
        if (still_table_remove(shared, key_of(key, 8), &old) == 1)
            free(old);
    }
    CHECK(still_table_len(shared) == 0 && still_table_free(shared) == 0 && still_reclaimer_free(reclaimer) == 0);
}

/* Several threads remove the values that they have found: exactly one removes each value, and a newer value stays. */
static int expired;

static void *expires(void *of_qsbr)
{
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    const void *by = of_qsbr ? (const void *)qsbr : reader;
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        still_pin(reader);
        void *found = NULL;
        if (still_table_get(shared, by, key_of(i % KEYS, 8), &found) == 1) {
            CHECK(((struct object *)found)->value > 0);
            struct object *newer = make(1);
            if (still_table_remove_if(shared, by, key_of(i % KEYS, 8), found) == 1) {
                CHECK(still_retire(reclaimer, found, sizeof(struct object), destroy, NULL) == 0);
                __atomic_add_fetch(&expired, 1, __ATOMIC_RELAXED);
                if (still_table_add(shared, by, key_of(i % KEYS, 8), newer, NULL) == 0)
                    newer = NULL;
            }
            free(newer);
        }
        still_unpin(reader);
        still_quiescent(qsbr);
        still_poll(reclaimer, STILL_ALL);
    }
    CHECK(still_qsbr_free(qsbr) == 0 && still_reader_free(reader) == 0 && still_reclaimer_free(reclaimer) == 0);
    return NULL;
}

static void expiry(void)
{
    shared = still_table_new(domain, 8, NULL);
    for (uint64_t key = 0; key < KEYS; key++)
        CHECK(still_table_insert(shared, key_of(key, 8), make(1), NULL) == 0);
    int before = destroyed(), thread_count = 3;
    pthread_t threads[3];
    for (int i = 0; i < thread_count; i++)
        CHECK(pthread_create(&threads[i], NULL, expires, i == 0 ? &expired : NULL) == 0);
    for (int i = 0; i < thread_count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(still_barrier(domain, STILL_FOREVER) == 0);
    CHECK(expired > 0 && destroyed() == before + expired);
    for (uint64_t key = 0; key < KEYS; key++) {
        void *old;
        if (still_table_remove(shared, key_of(key, 8), &old) == 1)
            free(old);
    }
    CHECK(still_table_len(shared) == 0 && still_table_free(shared) == 0);
}

/* Removed entries count in the domain until they are freed: by a poll of the table, or by a barrier. */
static void polls(void)
{
    enum { LIMIT = 100, ENTRIES = 500 };
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.max_pending = LIMIT;
    struct still_domain *limited = still_domain_new(&options);
    struct still_table *table = still_table_new(limited, 8, NULL);
    struct still_reader *reader = still_reader_new(limited);
    struct still_reclaimer *reclaimer = still_reclaimer_new(limited, NULL);
    for (uint64_t key = 0; key < ENTRIES; key++)
        CHECK(still_table_insert(table, key_of(key, 8), NULL, NULL) == 0);
    still_pin(reader);
    for (uint64_t key = 0; key < ENTRIES; key++)
        CHECK(still_table_remove(table, key_of(key, 8), NULL) == 1);
    CHECK(still_table_pending(table) >= ENTRIES && still_table_poll(table) == 0);
    struct object *object = make(1);
    REFUSED(still_retire(reclaimer, object, 8, destroy, NULL), -EDQUOT, "domain is full");
    still_unpin(reader);
    ssize_t freed = 0;
    while (still_table_pending(table) > 0) {
        ssize_t more = still_table_poll(table);
        CHECK(more >= 0);
        freed += more;
    }
    CHECK(freed >= ENTRIES);
    for (uint64_t key = 0; key < LIMIT; key++)
        CHECK(still_table_insert(table, key_of(key, 8), NULL, NULL) == 0 && still_table_remove(table, key_of(key, 8), NULL) == 1);
    CHECK(still_barrier(limited, STILL_FOREVER) == 0 && still_table_pending(table) == 0);
    CHECK(still_retire(reclaimer, object, 8, destroy, NULL) == 0 && still_flush(reclaimer, STILL_FOREVER) == 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reader_free(reader) == 0 && still_table_free(table) == 0);
    REFUSED(still_table_poll(table), -EBADF, "freed");
    REFUSED(still_table_pending(NULL), -EINVAL, "NULL");
    CHECK(still_domain_free(limited) == 0);
}

/* A write of a table calls destructors of the domain within the region of its reader, which they can neither free nor take offline. */
static int is_refused;

static void frees_guards(void *object, void *reader) STILL_NOEXCEPT
{
    REFUSED(still_reader_free((struct still_reader *)reader), -EBUSY, "in use");
    is_refused = 1;
    free(object);
}

static void frees_qsbr(void *object, void *qsbr) STILL_NOEXCEPT
{
    REFUSED(still_offline((struct still_qsbr *)qsbr), -EBUSY, "in use");
    REFUSED(still_qsbr_free((struct still_qsbr *)qsbr), -EBUSY, "in use");
    is_refused = 1;
    free(object);
}

static void readers_in_use(int is_online, int removes)
{
    enum { MANY = 10000 };
    struct still_domain *apart = still_domain_new(NULL);
    struct still_table *table = still_table_new(apart, 8, NULL);
    struct still_reader *guards = still_reader_new(apart);
    struct still_qsbr *qsbr = still_qsbr_new(apart);
    void *reader = is_online ? (void *)qsbr : (void *)guards;
    for (uint64_t i = 0; removes && i < MANY; i++)
        CHECK(still_table_insert(table, key_of(i, 8), word(i), NULL) == 0);
    is_refused = 0;
    CHECK(still_domain_retire(apart, make(1), sizeof(struct object), is_online ? frees_qsbr : frees_guards, reader) == 0);
    for (uint64_t i = 0; !is_refused && i < MANY; i++) {
        still_quiescent(qsbr);
        if (removes)
            CHECK(still_table_remove_if(table, reader, key_of(i, 8), word(i)) == 1);
        else
            CHECK(still_table_add(table, reader, key_of(i, 8), word(i), NULL) == 0);
    }
    CHECK(is_refused && still_reader_free(guards) == 0 && still_qsbr_free(qsbr) == 0);
    CHECK(still_table_free(table) == 0 && still_domain_free(apart) == 0);
}

int main(void)
{
    domain = still_domain_new(NULL);
    size_t sizes[] = { 1, 2, 4, 5, 8, 13, 16, 40, 64, 1000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size(sizes[i], NULL, NULL);
        hashed = 0;
        size(sizes[i], poor_hash, &sizes[i]);
        CHECK(hashed >= 200);
    }
    refusals();
    walks();
    polls();
    for (int i = 0; i < 4; i++)
        readers_in_use(i & 1, i >> 1);
    beside_writers();
    expiry();
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
