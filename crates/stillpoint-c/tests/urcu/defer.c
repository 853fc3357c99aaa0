/* Tests of defer_rcu. */
#include "flavour.h"

#include <stdint.h>

static uintptr_t next;
static int out_of_order;
static struct holder holder;

static void in_turn(void *argument)
{
    CHECK(!LOAD(holder.inside));
    if ((uintptr_t)argument != LOAD(next))
        ADD(out_of_order, 1);
    ADD(next, 1);
}

static int others;

static void count(void *argument)
{
    (void)argument;
    ADD(others, 1);
}

static void again(void *argument)
{
    if (argument != NULL)
        for (int each = 0; each < 5000; each++)
            defer_rcu(again, NULL);
    ADD(others, 1);
}

/* Also in qsbr, a thread that runs deferred calls is no reader: they may wait for a thread that waits for readers. */
static void is_no_reader(void *argument)
{
    (void)argument;
    CHECK(!rcu_read_ongoing());
    synchronize_rcu();
    /* Nothing of this leaves a reader behind. */
    rcu_quiescent_state();
    rcu_thread_offline();
    rcu_thread_online();
}

static int pushed_calls;

static void called(struct rcu_head *head)
{
    free(head);
    ADD(pushed_calls, 1);
}

/* The callbacks of call_rcu are in other queues. */
static void waits_for_calls(void *argument)
{
    (void)argument;
    for (int each = 0; each < 100; each++) {
        struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
        CHECK(head != NULL);
        call_rcu(head, called);
    }
    rcu_barrier();
    CHECK(LOAD(pushed_calls) == 100);
}

static void *forgets(void *argument)
{
    (void)argument;
    rcu_register_thread();
    CHECK(rcu_defer_register_thread() == 0);
    rcu_thread_offline();
    for (int each = 0; each < 100; each++)
        defer_rcu(count, NULL);
    return NULL;
}

int main(void)
{
    rcu_register_thread();
    CHECK(rcu_defer_register_thread() == 0 && rcu_defer_register_thread() == 0);
    /* Pushes far more calls than fit. When the ring is full, a call waits. */
    uintptr_t number = 0;
    while (number < 20000) {
        defer_rcu(in_turn, (void *)number++);
        rcu_quiescent_state();
    }
    CHECK(LOAD(next) >= 20000 - 4096);
    rcu_defer_barrier_thread();
    CHECK(LOAD(next) == number && LOAD(out_of_order) == 0);

    rcu_thread_offline();
    hold(&holder);
    rcu_thread_online();
    for (int each = 0; each < 4096; each++)
        defer_rcu(in_turn, (void *)number++);
    CHECK(LOAD(next) == number - 4096);
    rcu_thread_offline();
    let_go(&holder);
    rcu_thread_online();
    rcu_defer_barrier();
    CHECK(LOAD(next) == number && LOAD(out_of_order) == 0);

    for (int each = 0; each < 10; each++)
        CHECK(pthread_join(started(forgets, NULL), NULL) == 0);
    rcu_defer_barrier();
    CHECK(LOAD(others) == 1000);

    /* Calls that defer calls. */
    defer_rcu(again, &others);
    while (LOAD(others) < 6001)
        rcu_defer_barrier();
    defer_rcu(in_turn, (void *)number++);
    defer_rcu(waits_for_calls, NULL);
    defer_rcu(is_no_reader, NULL);
    rcu_defer_barrier();
    CHECK(LOAD(pushed_calls) == 100);
    synchronize_rcu();
    rcu_defer_unregister_thread();
    CHECK(LOAD(next) == number);
    rcu_unregister_thread();
    rcu_defer_exit();
    return 0;
}
