/* Litmus tests through the header. A reader holds an object while a writer unlinks it and checks whether a reader can hold it. The test
 * counts the outcomes, one of which is forbidden. The threads run freely, so that their steps meet in all orders, even within nanoseconds. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum {
    MILLISECONDS = 150, /* the time of each test in each mode of fences */
    ENDED = -1,         /* the value of a destroyed object */
    OBJECTS = 64,
};

/* The threads' variables, in separate cache lines. */
static struct {
    struct object *link;
} __attribute__((__aligned__(256))) place;
static struct {
    int value;
} __attribute__((__aligned__(256))) objects[OBJECTS], message, last;

/* The objects differ by their addresses, and are never freed. */
static struct object *at(int round)
{
    return (struct object *)(void *)&objects[round % OBJECTS];
}

static int value_of(struct object *object)
{
    return __atomic_load_n((int *)(void *)object, __ATOMIC_RELAXED);
}

static void set_value(struct object *object, int value)
{
    __atomic_store_n((int *)(void *)object, value, __ATOMIC_RELAXED);
}

static struct still_domain *domain;
/* How often the reader held an object; how often that object was unlinked meanwhile; how often it was destroyed meanwhile, which is
 * forbidden. */
static int held, unlinked, ended;
/* Whether the reader has held an object: the writer continues until then. */
static int has_held;

static void hold(struct object *object, int turns)
{
    int before = value_of(object);
    for (int turn = 0; turn < turns; turn++)
        __asm__ volatile("" ::: "memory");
    if (held++ == 0)
        __atomic_store_n(&has_held, 1, __ATOMIC_RELAXED);
    unlinked += __atomic_load_n(&place.link, __ATOMIC_RELAXED) != object;
    ended += before == ENDED || value_of(object) != before;
}

/* Issues slow stores, which delay the next store. Without a fence, that store becomes visible long after the loads that follow it. */
static void fill_the_store_buffer(void)
{
    static struct {
        int value;
    } __attribute__((__aligned__(64))) far[1 << 18];
    static uint32_t random = 1;
    for (int times = 0; times < 12; times++) {
        random = random * 1664525u + 1013904223u;
        __atomic_store_n(&far[random >> 14].value, times, __ATOMIC_RELAXED);
    }
}

static void *by_pin(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    CHECK(reader != NULL);
    for (int round = 0; !__atomic_load_n(&last.value, __ATOMIC_ACQUIRE); round++) {
        fill_the_store_buffer();
        still_pin(reader);
        hold((struct object *)still_load(&place.link), round % 37 * 20);
        still_unpin(reader);
    }
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

/* The reader comes back for each region. */
static void *by_return(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    CHECK(reader != NULL);
    for (int round = 0; !__atomic_load_n(&last.value, __ATOMIC_ACQUIRE); round++) {
        CHECK(still_reader_offline(reader) == (round != 0));
        fill_the_store_buffer();
        still_pin(reader);
        hold((struct object *)still_load(&place.link), round % 37 * 20);
        still_unpin(reader);
    }
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

static void *by_protect(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    CHECK(reader != NULL);
    for (int round = 0; !__atomic_load_n(&last.value, __ATOMIC_ACQUIRE); round++) {
        fill_the_store_buffer();
        struct still_protected found = still_protect(reader, &place.link);
        hold((struct object *)found.object, round % 37 * 20);
        still_release(found);
    }
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

/* Makes a link whose address is the value itself. If the value were in an object that the link points to, the writer could already have
 * stored the next value there when the reader looks. */
static struct object *number(int value)
{
    return (struct object *)((uintptr_t)value * 64);
}

/* Writes before the store are visible after the load. */
static void *by_load(void *unused)
{
    while (!__atomic_load_n(&last.value, __ATOMIC_ACQUIRE)) {
        int value = (int)((uintptr_t)still_load(&place.link) / 64);
        if (held++ == 0)
            __atomic_store_n(&has_held, 1, __ATOMIC_RELAXED);
        ended += __atomic_load_n(&message.value, __ATOMIC_RELAXED) < value;
    }
    return unused;
}

/* The writers return whether one check was enough. */
static int check(struct object *old)
{
    uint64_t token = still_start(domain);
    int looks = 1, answer;
    for (; (answer = still_check(domain, token)) == 0; looks++)
        if (looks > 100)
            sched_yield();
    CHECK(answer == 1);
    set_value(old, ENDED);
    return looks == 1;
}

static int synchronize(struct object *old)
{
    int answer = still_synchronize(domain, 0);
    CHECK(answer == 0 || still_synchronize(domain, STILL_FOREVER) == 0);
    set_value(old, ENDED);
    return answer == 0;
}

static void end_it(void *object, void *context) STILL_NOEXCEPT
{
    CHECK(context == NULL);
    set_value((struct object *)object, ENDED);
}

static int retire(struct object *old)
{
    static struct still_reclaimer *reclaimer;
    if (old == NULL) {
        CHECK(reclaimer == NULL || still_reclaimer_free(reclaimer) == 0);
        reclaimer = still_reclaimer_new(domain, NULL);
        CHECK(reclaimer != NULL);
        return 0;
    }
    CHECK(still_retire(reclaimer, old, 64, end_it, NULL) == 0);
    int answer = still_flush(reclaimer, 0);
    CHECK(answer == 0 || still_flush(reclaimer, STILL_FOREVER) == 0);
    return answer == 0;
}

static int store(struct object *old)
{
    (void)old;
    return 1;
}

static int64_t milliseconds(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void meetings(const char *name, void *(*reads)(void *), int (*waits)(struct object *))
{
    int64_t end = milliseconds() + MILLISECONDS;
    int rounds = 1, at_once = 0;
    held = has_held = unlinked = ended = last.value = message.value = 0;
    set_value(at(0), 0);
    still_store(&place.link, waits == store ? number(0) : at(0));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads, NULL) == 0);
    for (; rounds % 64 != 0 || milliseconds() < end || !__atomic_load_n(&has_held, __ATOMIC_RELAXED); rounds++) {
        if (waits == store) {
            __atomic_store_n(&message.value, rounds, __ATOMIC_RELAXED);
            still_store(&place.link, number(rounds));
            at_once++;
        } else {
            set_value(at(rounds), rounds);
            at_once += waits((struct object *)still_exchange(&place.link, at(rounds)));
        }
    }
    __atomic_store_n(&last.value, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    printf("%s: %d rounds, %d over at once; %d held, %d unlinked meanwhile, %d ended meanwhile\n", name, rounds, at_once, held, unlinked,
           ended);
    CHECK(ended == 0);
}

int main(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    for (options.mode = STILL_MODE_SYMMETRIC; options.mode <= STILL_MODE_ASYMMETRIC; options.mode++) {
        domain = still_domain_new(&options);
        if (domain == NULL)
            continue; /* the kernel has no membarrier(2) */
        meetings("pin, check", by_pin, check);
        meetings("pin, synchronize", by_pin, synchronize);
        (void)retire(NULL);
        meetings("pin, retire", by_pin, retire);
        meetings("return, check", by_return, check);
        meetings("return, retire", by_return, retire);
        meetings("protect, retire", by_protect, retire);
        meetings("load, store", by_load, store);
    }
    return 0;
}
