/* Readers look at objects that writers replace, and notice an object that was freed while they used it. If BROKEN is defined, sections
 * protect nothing. The test must notice that, and exit with status 7. */
#include "flavour.h"

#include <time.h>

#ifdef BROKEN
#undef rcu_read_lock
#undef rcu_read_unlock
#define rcu_read_lock() ((void)0)
#define rcu_read_unlock() ((void)0)
#endif

enum { SLOTS = 8, READERS = 4, WRITERS = 2, SEATS = 4096, UPDATES = 40000 };

struct object {
    struct rcu_head head;
    int is_alive;
    int check;
};

/* Freed objects are used again at once, so that a late reader reads valid memory. */
static struct object objects[SEATS];
static struct object *slots[SLOTS];
static int stop, early, reads_done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *unused[SEATS];
static int number_unused;

static void give(struct object *object)
{
    pthread_mutex_lock(&lock);
    unused[number_unused++] = object;
    pthread_mutex_unlock(&lock);
}

static struct object *take(void)
{
    pthread_mutex_lock(&lock);
    struct object *object = number_unused > 0 ? unused[--number_unused] : NULL;
    pthread_mutex_unlock(&lock);
    return object;
}

static void freed(struct rcu_head *head)
{
    struct object *object = caa_container_of(head, struct object, head);
    STORE(object->is_alive, 0);
    give(object);
}

static void *reads(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    rcu_register_thread();
    while (!LOAD(stop)) {
        rcu_read_lock();
        seed = seed * 1103515245u + 12345u;
        struct object *object = rcu_dereference(slots[(seed >> 16) % SLOTS]);
        int check = __atomic_load_n(&object->check, __ATOMIC_RELAXED);
        for (int look = 0; look < 20; look++) {
            if (!__atomic_load_n(&object->is_alive, __ATOMIC_RELAXED) ||
                __atomic_load_n(&object->check, __ATOMIC_RELAXED) != check)
                ADD(early, 1);
            if (look == 10 && (seed & 0x700) == 0)
                sched_yield();
        }
        rcu_read_unlock();
        ADD(reads_done, 1);
#if !defined(BROKEN) || !defined(FLAVOUR_QSBR)
        rcu_quiescent_state();
#endif
    }
    rcu_unregister_thread();
    return NULL;
}

static void *writes(void *argument)
{
    int own = (int)(intptr_t)argument;
    for (int update = 0; update < UPDATES && !LOAD(early); update++) {
        struct object *object = take();
        if (object == NULL) {
            rcu_barrier();
            continue;
        }
        __atomic_store_n(&object->check, update * WRITERS + own, __ATOMIC_RELAXED);
        STORE(object->is_alive, 1);
        struct object *before = rcu_xchg_pointer(&slots[update % SLOTS], object);
        if (update % 64 != 0) {
            call_rcu(&before->head, freed);
        } else {
            synchronize_rcu();
            freed(&before->head);
        }
    }
    return NULL;
}

int main(void)
{
    for (int each = 0; each < SEATS; each++)
        give(&objects[each]);
    for (int slot = 0; slot < SLOTS; slot++) {
        slots[slot] = take();
        slots[slot]->is_alive = 1;
    }
    pthread_t readers[READERS], writers[WRITERS];
    for (int each = 0; each < READERS; each++)
        readers[each] = started(reads, (void *)(uintptr_t)(each + 1));
    AWAIT(LOAD(reads_done) > 100);
    for (int each = 0; each < WRITERS; each++)
        writers[each] = started(writes, (void *)(intptr_t)each);
    for (int each = 0; each < WRITERS; each++)
        CHECK(pthread_join(writers[each], NULL) == 0);
    STORE(stop, 1);
    for (int each = 0; each < READERS; each++)
        CHECK(pthread_join(readers[each], NULL) == 0);
    rcu_barrier();
    if (LOAD(early) > 0) {
        fprintf(stderr, "readers looked at freed objects %d times\n", LOAD(early));
        return 7;
    }
    CHECK(number_unused == SEATS - SLOTS);
    return 0;
}
