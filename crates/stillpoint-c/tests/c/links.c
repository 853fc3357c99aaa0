/* Tests of links: calls take the address of a pointer. If WRONG is defined, one call is wrong and must not compile: it passes the pointer
 * itself, mixes pointers to different types, or ignores the result. */
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

/* Correct calls. Each argument is evaluated once. */
static void right(struct still_hold *hold, struct object *object)
{
    struct object *cells[2] = { NULL, NULL }, **cell = cells, *objects[2] = { object, NULL }, **next = objects;
    still_store(cell++, *next++);
    CHECK(cell == cells + 1 && next == objects + 1 && cells[0] == object);
    struct object *found = still_load(--cell);
    CHECK(cell == cells && found == object);
    found = still_exchange(cell++, *next--);
    CHECK(cell == cells + 1 && next == objects && found == object && cells[0] == NULL);
    CHECK(still_compare_exchange(--cell, objects[1], *next++) && cell == cells && next == objects + 1 && cells[0] == object);
    struct object *places[2] = { NULL, NULL }, **place = places;
    CHECK(still_hold_protect(hold, cell++, place++) == 1 && cell == cells + 1 && place == places + 1);
    CHECK(places[0] == object && still_hold_release(hold) == 0);
    still_store(cells, NULL);
    still_store(cells, 0);
    CHECK(still_load(cells) == NULL && still_load(cells + 1) == NULL);
    static struct opaque *opaque;
    struct opaque *none = still_exchange(&opaque, NULL);
    CHECK(none == NULL && still_compare_exchange(&opaque, none, NULL));
    static const struct object *constant;
    still_store(&constant, object);
    const struct object *same = still_exchange(&constant, NULL);
    CHECK(same == object);
    static void *any;
    still_store(&any, object);
    CHECK(still_load(&any) == object);
#ifndef __cplusplus
    /* Conversions that C allows and C++ does not. */
    found = still_load(&any);
    still_store(cells, any);
    still_store(cells, same);
    CHECK(still_compare_exchange(cells, same, any));
    static _Atomic(struct object *) atomic;
    still_store(&atomic, object);
    CHECK(still_compare_exchange(&atomic, found, found) && still_hold_protect(hold, &atomic, places) == 1);
    CHECK(places[0] == found && still_hold_protect(hold, cells, &any) == 1 && any == cells[0]);
    found = still_exchange(&atomic, NULL);
    CHECK(found == object && still_load(&atomic) == NULL && still_hold_release(hold) == 0);
#endif
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
    struct object *found = NULL;
    CHECK(still_hold_protect(hold, readable, &found) == 1 && found == first && still_hold_release(hold) == 0);
    struct still_protected held = still_protect(reader, &current);
    CHECK(held.object == first);
    still_release(held);
    right(hold, first);
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
    (void)!still_hold_protect(hold, current, &found);
#elif WRONG == 7
    int number = 1;
    (void)!still_load(&number);
#elif WRONG == 8
    struct object **links = cells, *one = still_load(&links);
    CHECK(one != NULL);
#elif WRONG == 9
    struct object **links = cells, *one = still_exchange(&links, NULL);
    CHECK(one != NULL);
#elif WRONG == 10
    int *number = NULL;
    CHECK(still_hold_protect(hold, &current, &number) == 1);
#elif WRONG == 11
    still_store(&current, &current);
#elif WRONG == 12
    (void)!still_exchange(&current, &held);
#elif WRONG == 13
    (void)!still_compare_exchange(&current, &current, second);
#elif WRONG == 14
    (void)!still_compare_exchange(&current, first, &current);
#elif WRONG == 15
    still_load(&current);
#elif WRONG == 16
    still_exchange(&current, second);
#elif WRONG == 17
    still_hold_protect(hold, &current, &found);
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
