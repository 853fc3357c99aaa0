/*
 * stillpoint through its C header, to compare the C interface with Rust: the three kinds of readers, and a writer that polls.
 */
#include <stillpoint.h>

#include "peer.h"

/* Returns `handle`. If it is NULL (no memory, or a defect), ends the program, since the measurement cannot continue. */
static void *made(void *handle)
{
    if (handle == NULL) {
        fprintf(stderr, "stillpoint.h: %s\n", still_error());
        abort();
    }
    return handle;
}

static void worked(int answer)
{
    if (answer < 0) {
        fprintf(stderr, "stillpoint.h: %s\n", still_error());
        abort();
    }
}

struct still_domain *stillpoint_c_new(void)
{
    return made(still_domain_new(NULL));
}

void stillpoint_c_free(struct still_domain *domain)
{
    worked(still_domain_free(domain));
}

/* The kind of a reader: `Reading` in src/native/header.rs. */
enum reading { PROTECTED, GUARD, QSBR };

/* The reader of a thread, of either type. */
union reader {
    struct still_reader *reader;
    struct still_qsbr *qsbr;
};

union reader stillpoint_c_join(struct still_domain *domain, enum reading reading)
{
    union reader joined;

    if (reading == QSBR) {
        joined.qsbr = made(still_qsbr_new(domain));
        worked(still_offline(joined.qsbr));
    } else {
        joined.reader = made(still_reader_new(domain));
    }
    return joined;
}

void stillpoint_c_leave(union reader joined, enum reading reading)
{
    worked(reading == QSBR ? still_qsbr_free(joined.qsbr) : still_reader_free(joined.reader));
}

/* As `look_up`, with the protected element in place of a loaded one. */
static bool is_right(const struct element *element, uint64_t index)
{
    return element->key == index && atomic_load_explicit(&element->value, memory_order_relaxed) == index;
}

/* The loop over an array by protected loads: the protection holds the element that it has loaded. */
static struct read_outcome read_protected(struct still_reader *reader, const struct read_job *job)
{
    struct still_protected held;
    struct read_outcome outcome;

    READ_LOOP(job, &outcome, is_right(held.object, index_), held.object,
              held = still_protect(reader, (struct element *const *)&job_.slots[index_]), still_release(held), (void)0, (void)0);
    return outcome;
}

struct read_outcome stillpoint_c_read(union reader joined, enum reading reading, const struct read_job *job)
{
    struct read_outcome outcome;

    if (reading == PROTECTED)
        return read_protected(joined.reader, job);
    if (reading == GUARD) {
        READ_SLOTS(job, &outcome, still_pin(joined.reader), still_unpin(joined.reader), (void)0, (void)0);
        return outcome;
    }
    worked(still_online(joined.qsbr));
    READ_SLOTS(job, &outcome, (void)0, still_quiescent(joined.qsbr), worked(still_offline(joined.qsbr)),
               worked(still_online(joined.qsbr)));
    worked(still_offline(joined.qsbr));
    return outcome;
}

/* Makes a reclaimer without a limit, since the peers have none. */
struct still_reclaimer *stillpoint_c_reclaimer(struct still_domain *domain)
{
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;

    options.max_pending = SIZE_MAX;
    return made(still_reclaimer_new(domain, &options));
}

/* Frees the reclaimer. No object may be pending. */
void stillpoint_c_end(struct still_reclaimer *reclaimer)
{
    worked(still_reclaimer_free(reclaimer));
}

void stillpoint_c_retire(struct still_reclaimer *reclaimer, struct element *element, still_destroy_fn *release)
{
    worked(still_retire(reclaimer, element, sizeof *element, release, NULL));
}

void stillpoint_c_poll(struct still_reclaimer *reclaimer)
{
    worked((int)still_poll(reclaimer, STILL_ALL));
}

/* Waits until all elements are freed, however long readers delay that. */
void stillpoint_c_flush(struct still_reclaimer *reclaimer)
{
    worked(still_flush(reclaimer, STILL_FOREVER));
}

void stillpoint_c_micro_quiescent(uint64_t iterations)
{
    struct still_domain *domain = stillpoint_c_new();
    struct still_qsbr *qsbr = made(still_qsbr_new(domain));

    REPEAT(iterations, still_quiescent(qsbr));
    worked(still_qsbr_free(qsbr));
    stillpoint_c_free(domain);
}

void stillpoint_c_micro_pin(uint64_t iterations)
{
    struct still_domain *domain = stillpoint_c_new();
    struct still_reader *reader = made(still_reader_new(domain));

    REPEAT(iterations, { still_pin(reader); still_unpin(reader); });
    worked(still_reader_free(reader));
    stillpoint_c_free(domain);
}

void stillpoint_c_micro_protect(uint64_t iterations)
{
    struct still_domain *domain = stillpoint_c_new();
    struct still_reader *reader = made(still_reader_new(domain));
    uint64_t object[8] = {7};
    uint64_t *link = object;

    REPEAT(iterations, still_release(still_protect(reader, &link)));
    worked(still_reader_free(reader));
    stillpoint_c_free(domain);
}

void stillpoint_c_micro_check(uint64_t iterations)
{
    struct still_domain *domain = stillpoint_c_new();
    struct still_qsbr *qsbr = made(still_qsbr_new(domain));
    uint64_t token = still_start(domain);
    volatile int is_over;

    still_quiescent(qsbr);
    REPEAT(iterations, is_over = still_check(domain, token));
    (void)is_over;
    worked(still_qsbr_free(qsbr));
    stillpoint_c_free(domain);
}

static void release_object(void *object, void *context)
{
    (void)context;
    free(object);
}

static void retire_object(struct still_reclaimer *reclaimer, _Atomic(void *) *shared, uint64_t number)
{
    void *old = exchange_object(shared, new_object(number));

    if (old != NULL)
        worked(still_retire(reclaimer, old, 64, release_object, NULL));
    if ((number + 1) % RETIRED_TOGETHER == 0)
        (void)still_poll(reclaimer, STILL_ALL);
}

/* Replaces and retires objects, beside a reader whose protected loads every poll has to scan. */
void stillpoint_c_micro_retire(uint64_t iterations)
{
    struct still_domain *domain = stillpoint_c_new();
    struct still_reader *reader = made(still_reader_new(domain));
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
    struct still_reclaimer *reclaimer;
    _Atomic(void *) shared = NULL;

    options.batch = RETIRED_TOGETHER;
    reclaimer = made(still_reclaimer_new(domain, &options));
    REPEAT(iterations, retire_object(reclaimer, &shared, i_));
    worked(still_flush(reclaimer, STILL_FOREVER));
    stillpoint_c_end(reclaimer);
    free(exchange_object(&shared, NULL));
    worked(still_reader_free(reader));
    stillpoint_c_free(domain);
}

/* How many keys of 8 bytes are in a table that fits into a cache, and in one that does not. Each key is its own value. The same as in
* capi/ours.rs of the program. */
enum { FEW = 1000, MANY = 1 << 20, BURST = 32 };

/* A table with `count` keys, which is made once and never freed. For one thread at a time. */
static struct still_table *table_of(uint64_t count, struct still_domain **domain)
{
    static struct still_domain *domain_of_all;
    static struct still_table *tables[2];
    struct still_table **table = &tables[count == MANY];

    if (domain_of_all == NULL)
        domain_of_all = stillpoint_c_new();
    if (*table == NULL) {
        *table = made(still_table_new(domain_of_all, sizeof(uint64_t), NULL));
        for (uint64_t key = 0; key < count; key++)
            worked(still_table_insert(*table, &key, (void *)(uintptr_t)key, NULL));
    }
    *domain = domain_of_all;
    return *table;
}

static void has(bool is_right_value)
{
    if (!is_right_value) {
        fputs("stillpoint.h: a table has lost a key\n", stderr);
        abort();
    }
}

static void look_keys_up(uint64_t count, uint64_t iterations)
{
    struct still_domain *domain;
    struct still_table *table = table_of(count, &domain);
    struct still_qsbr *reader = made(still_qsbr_new(domain));
    uint64_t state = 1, key;
    void *value;

    REPEAT(iterations, {
        key = next_random(&state) % count;
        has(still_table_get(table, reader, &key, &value) == 1 && (uintptr_t)value == key);
    });
    worked(still_qsbr_free(reader));
}

/* Looks up keys, 32 at a time. */
static void look_bursts_up(uint64_t count, uint64_t iterations)
{
    struct still_domain *domain;
    struct still_table *table = table_of(count, &domain);
    struct still_qsbr *reader = made(still_qsbr_new(domain));
    uint64_t state = 1, keys[BURST], hits;
    void *values[BURST];

    REPEAT((iterations + BURST - 1) / BURST, {
        for (int i = 0; i < BURST; i++)
            keys[i] = next_random(&state) % count;
        has(still_table_get_many(table, reader, keys, BURST, values, &hits) == BURST);
        for (int i = 0; i < BURST; i++)
            has((uintptr_t)values[i] == keys[i]);
    });
    worked(still_qsbr_free(reader));
}

void stillpoint_c_micro_lookup(uint64_t iterations)
{
    look_keys_up(FEW, iterations);
}

void stillpoint_c_micro_burst(uint64_t iterations)
{
    look_bursts_up(FEW, iterations);
}

void stillpoint_c_micro_lookup_of_many(uint64_t iterations)
{
    look_keys_up(MANY, iterations);
}

void stillpoint_c_micro_burst_of_many(uint64_t iterations)
{
    look_bursts_up(MANY, iterations);
}
