/* For ThreadSanitizer: frees objects after each kind of wait. If EARLY is defined, frees one object without a grace period. */
#include "flavour.h"

struct object {
    struct rcu_head head;
    long value;
};

static struct object *current;
static int stop;
/* For each reader, the sections that it has ended. Relaxed: these numbers must not order the reads before a free. */
static int reads_done[2];

static void freed(struct rcu_head *head)
{
    struct object *object = caa_container_of(head, struct object, head);
    object->value = -1;
    free(object);
}

static void freed_later(void *object)
{
    freed(&((struct object *)object)->head);
}

static void *reads(void *argument)
{
    int *done = (int *)argument;
    rcu_register_thread();
    while (!LOAD(stop)) {
        rcu_read_lock();
        rcu_read_lock();
        struct object *object = rcu_dereference(current);
        CHECK(object->value > 0);
        rcu_read_unlock();
        rcu_read_unlock();
        rcu_quiescent_state();
        /* The writer waits for the readers all the time. Without this it would wait for the ends of their time slices. */
        if (__atomic_add_fetch(done, 1, __ATOMIC_RELAXED) % 16 == 0)
            sched_yield();
    }
    rcu_unregister_thread();
    return NULL;
}

static struct object *make(long value)
{
    struct object *object = (struct object *)malloc(sizeof *object);
    CHECK(object != NULL);
    object->value = value;
    return object;
}

/* Waits until each reader has ended a section that began after this call. */
static void both_have_read(void)
{
    for (int each = 0; each < 2; each++) {
        int done = __atomic_load_n(&reads_done[each], __ATOMIC_RELAXED);
        AWAIT(__atomic_load_n(&reads_done[each], __ATOMIC_RELAXED) > done + 1);
    }
}

int main(void)
{
    rcu_assign_pointer(current, make(1));
    pthread_t threads[2] = {started(reads, &reads_done[0]), started(reads, &reads_done[1])};
    for (long value = 2; value < 2000; value++) {
        struct object *before = rcu_xchg_pointer(&current, make(value));
        switch (value % 4) {
        case 0:
            synchronize_rcu();
            freed(&before->head);
            break;
        case 1: {
            struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
            AWAIT(poll_state_synchronize_rcu(state));
            freed(&before->head);
            break;
        }
        case 2:
            call_rcu(&before->head, freed);
            break;
        default:
            defer_rcu(freed_later, before);
            break;
        }
#ifdef EARLY
        if (value % 20 == 0) {
            both_have_read();
            before = rcu_xchg_pointer(&current, make(value));
            /* Nothing orders the reads before the free, which is a data race; but no reader has the object any more. */
            both_have_read();
            freed(&before->head);
        }
#endif
        both_have_read();
    }
    STORE(stop, 1);
    for (int each = 0; each < 2; each++)
        CHECK(pthread_join(threads[each], NULL) == 0);
    rcu_barrier();
    rcu_defer_barrier();
    free(current);
    return 0;
}
