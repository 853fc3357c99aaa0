/* Tests of call_rcu and rcu_barrier. */
#include "flavour.h"

#include <malloc.h>

struct object {
    long value;
    struct rcu_head head;
};

static int called, before, out_of_order;
static struct holder holder;

static void free_object(struct rcu_head *head)
{
    struct object *object = caa_container_of(head, struct object, head);
    if (object->value != LOAD(called) - LOAD(before))
        ADD(out_of_order, 1);
    CHECK(!LOAD(holder.inside));
    /* The worker no longer touches the head. */
    memset(object, 0xaa, sizeof *object);
    free(object);
    ADD(called, 1);
}

static struct object *make(long value)
{
    struct object *object = (struct object *)malloc(sizeof *object);
    CHECK(object != NULL);
    object->value = value;
    return object;
}

static void in_order(int number)
{
    rcu_barrier();
    STORE(before, LOAD(called));
    for (int value = 0; value < number; value++)
        call_rcu(&make(value)->head, free_object);
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(before) + number && LOAD(out_of_order) == 0);
}

static void *unregistered(void *argument)
{
    (void)argument;
    in_order(1000);
    return NULL;
}

/* The head may lie on the caller's stack. */
static int is_called;

static void mark(struct rcu_head *head)
{
    memset(head, 0xaa, sizeof *head);
    ADD(is_called, 1);
}

/* Callbacks that push callbacks. */
static int generations;

static void again(struct rcu_head *head)
{
    if (ADD(generations, 1) < 20)
        call_rcu(head, again);
    else
        free(head);
}

/* Callbacks may read and wait. */
static int *shared;
static int has_read;

static void reads(struct rcu_head *head)
{
    rcu_read_lock();
    CHECK(rcu_read_ongoing());
    int *found = rcu_dereference(shared);
    CHECK(*found == 7);
    rcu_read_unlock();
    free(head);
    synchronize_rcu();
    ADD(has_read, 1);
}

static void waits_for_itself(struct rcu_head *head)
{
    /* This wait is reported and refused. */
    rcu_barrier();
    free(head);
    ADD(has_read, 1);
}

static int deferred_calls, is_asked;

static void deferred(void *argument)
{
    (void)argument;
    ADD(deferred_calls, 1);
}

/* Deferred calls are in another queue. */
static void waits_for_deferred(struct rcu_head *head)
{
    for (int each = 0; each < 100; each++)
        defer_rcu(deferred, NULL);
    rcu_defer_barrier();
    CHECK(LOAD(deferred_calls) == 100);
    free(head);
    ADD(has_read, 1);
}

/* A callback runs on the thread of its worker, and that worker is the thread's own worker. */
static void asks_for_its_worker(struct rcu_head *head)
{
    struct call_rcu_data *own = get_call_rcu_data();
    CHECK(own != NULL && own == get_thread_call_rcu_data() && own != get_default_call_rcu_data());
    CHECK(pthread_equal(get_call_rcu_thread(own), pthread_self()));
    free(head);
    ADD(is_asked, 1);
}

static struct rcu_head *head(void)
{
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    return head;
}

int main(void)
{
    static int seven = 7;
    rcu_assign_pointer(shared, &seven);
    CHECK(pthread_join(started(unregistered, NULL), NULL) == 0);
    rcu_register_thread();
    in_order(10000);
    CHECK(rcu_read_ongoing() == IS_QSBR);

    struct rcu_head on_stack;
    memset(&on_stack, 0x55, sizeof on_stack);
    call_rcu(&on_stack, mark);
    rcu_barrier();
    CHECK(LOAD(is_called) == 1);

    call_rcu(head(), again);
    while (LOAD(generations) < 20)
        rcu_barrier();

    call_rcu(head(), reads);
    call_rcu(head(), waits_for_itself);
    call_rcu(head(), waits_for_deferred);
    rcu_barrier();
    CHECK(LOAD(has_read) == 3);

    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    set_thread_call_rcu_data(own);
    call_rcu(head(), asks_for_its_worker);
    rcu_barrier();
    CHECK(LOAD(is_asked) == 1);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);

    /* No callback runs before the section ends, and no push allocates. */
    enum { MANY = 100000 };
    struct object **objects = (struct object **)malloc(MANY * sizeof *objects);
    CHECK(objects != NULL);
    for (long value = 0; value < MANY; value++)
        objects[value] = make(value);
    rcu_thread_offline();
    hold(&holder);
    rcu_thread_online();
    STORE(before, LOAD(called));
    size_t used = mallinfo2().uordblks;
    for (int value = 0; value < MANY; value++)
        call_rcu(&objects[value]->head, free_object);
    CHECK(mallinfo2().uordblks <= used + 4096);
    CHECK(LOAD(called) == LOAD(before));
    rcu_thread_offline();
    let_go(&holder);
    rcu_thread_online();
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(before) + MANY && LOAD(out_of_order) == 0);
    free(objects);

#ifndef FLAVOUR_QSBR
    /* A wait in a section is reported and refused. */
    rcu_read_lock();
    rcu_barrier();
    rcu_read_unlock();
#endif
    rcu_unregister_thread();
    return 0;
}
