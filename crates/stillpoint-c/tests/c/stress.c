/* Threads read and replace objects as fast as they can. No reader sees a destroyed object, and every object is destroyed once. */
#include "check.h"

#include <pthread.h>

enum { CELLS = 8, READERS = 3, ROUNDS = 20000 };

static struct still_domain *domain;
static struct object *cells[CELLS];
static int stop;

static void look(const struct object *object)
{
    CHECK(object == NULL || object->value > 0);
}

static void *reads(void *kind)
{
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    CHECK(still_offline(qsbr) == 0);
    for (unsigned i = (unsigned)(uintptr_t)kind; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        struct object **cell = &cells[i % CELLS];
        switch (i / CELLS % 3) {
        case 0: {
            struct still_protected one = still_protect(reader, cell), two = still_protect(reader, &cells[0]);
            look((struct object *)one.object);
            look((struct object *)two.object);
            still_release(one);
            look((struct object *)two.object);
            still_release(two);
            break;
        }
        case 1:
            still_pin(reader);
            look((struct object *)still_load(cell));
            still_unpin(reader);
            break;
        default:
            CHECK(still_online(qsbr) == 0);
            look((struct object *)still_load(cell));
            still_quiescent(qsbr);
            look((struct object *)still_load(cell));
            CHECK(still_offline(qsbr) == 0);
        }
    }
    CHECK(still_qsbr_free(qsbr) == 0 && still_reader_free(reader) == 0);
    return NULL;
}

int main(void)
{
    domain = still_domain_new(NULL);
    for (int i = 0; i < CELLS; i++)
        cells[i] = make(1);
    pthread_t threads[READERS];
    for (uintptr_t i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, reads, (void *)i) == 0);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    struct still_background *background = still_background_new(domain, NULL);
    struct still_queue *queue = still_queue_new(domain);
    for (int i = 1; i <= ROUNDS; i++) {
        struct object *old = (struct object *)still_exchange(&cells[i % CELLS], make(i));
        switch (i % 3) {
        case 0: CHECK(still_retire(reclaimer, old, sizeof *old, destroy, NULL) == 0); break;
        case 1: CHECK(still_submit(background, old, sizeof *old, destroy, NULL) == 0); break;
        default: CHECK(still_call_object(queue, &old->callback, old, called) == 0);
        }
        still_poll(reclaimer, 16);
        still_queue_poll(queue, 16);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < READERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0);
    CHECK(still_background_free(background, STILL_FOREVER) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0);
    while (still_queue_pending(queue) > 0)
        still_queue_poll(queue, STILL_ALL);
    CHECK(destroyed() == ROUNDS);
    CHECK(still_queue_free(queue) == 0 && still_reclaimer_free(reclaimer) == 0 && still_domain_free(domain) == 0);
    for (int i = 0; i < CELLS; i++)
        free(cells[i]);
    return 0;
}
