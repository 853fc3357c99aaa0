/* Links: calls take the address of a pointer. With WRONG set, one call gets the pointer itself, and must not compile. */
#include "check.h"

#include <pthread.h>

static struct object *current;
static struct object *const *readable = &current;

static struct still_domain *domain;

enum { THREADS = 4, ROUNDS = 2000 };

/* Several writers: each replaces the object that it has read, or tries again. */
static void *counts(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    for (int i = 0; i < ROUNDS;) {
        struct still_protected held = still_protect(reader, &current);
        struct object *old = (struct object *)held.object, *more = make(old->value + 1);
        if (still_compare_exchange(&current, old, more)) {
            still_release(held);
            CHECK(still_retire(reclaimer, old, sizeof *old, destroy, NULL) == 0);
            i++;
        } else {
            still_release(held);
            free(more);
        }
        still_poll(reclaimer, STILL_ALL);
    }
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reader_free(reader) == 0);
    return unused;
}

int main(void)
{
    domain = still_domain_new(NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_hold *hold = still_hold_new(domain);
    struct object *first = make(1), *second = make(2);
    still_store(&current, first);
    CHECK(still_load(&current) == first && still_load(readable) == first);
    CHECK(!still_compare_exchange(&current, second, NULL) && current == first);
    CHECK(still_compare_exchange(&current, first, second) && current == second);
    CHECK(still_exchange(&current, first) == second);
    struct object *cells[2] = { first, second };
    CHECK(still_load(cells) == first && still_load(cells + 1) == second);
    CHECK(still_hold_protect(hold, &current) == first && still_hold_release(hold) == 0);
    struct still_protected held = still_protect(reader, &current);
    CHECK(held.object == first);
    still_release(held);
    held = still_protect(reader, readable);
    still_release(held);
#if WRONG == 1
    (void)!still_load(current);
#elif WRONG == 2
    held = still_protect(reader, current);
#elif WRONG == 3
    still_store(current, second);
#elif WRONG == 4
    (void)!still_exchange(current, second);
#elif WRONG == 5
    (void)!still_compare_exchange(current, first, second);
#elif WRONG == 6
    (void)!still_hold_protect(hold, current);
#elif WRONG == 7
    int number = 1;
    (void)!still_load(&number);
#endif
    current->value = 0;
    free(second);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, counts, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(current->value == THREADS * ROUNDS && destroyed() == THREADS * ROUNDS);
    free(current);
    CHECK(still_hold_free(hold) == 0 && still_reader_free(reader) == 0 && still_domain_free(domain) == 0);
    return 0;
}
