/* Workers inherit nothing from the thread that starts them, unless the program makes the worker. */
#include "flavour.h"

#include <pthread.h>

static cpu_set_t before, one;
static int called;

static void takes_over_nothing(struct rcu_head *head)
{
    cpu_set_t own;
    (void)head;
    CHECK(sched_getaffinity(0, sizeof own, &own) == 0 && CPU_EQUAL(&own, &before));
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    ADD(called, 1);
}

static void takes_over_all(struct rcu_head *head)
{
    cpu_set_t own;
    (void)head;
    CHECK(sched_getaffinity(0, sizeof own, &own) == 0 && CPU_EQUAL(&own, &one));
    CHECK(sched_getscheduler(0) == SCHED_BATCH);
    char name[16];
    CHECK(pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, "mine") == 0);
    ADD(called, 1);
}

static void *calls(void *unused)
{
    struct sched_param param;
    struct rcu_head heads[2];
    unsigned cpu = 0;
    memset(&param, 0, sizeof param);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && sched_setscheduler(0, SCHED_BATCH, &param) == 0);
    rcu_register_thread();
    call_rcu(&heads[0], takes_over_nothing);
    rcu_barrier();
    struct call_rcu_data *worker = create_call_rcu_data(0, -1);
    CHECK(worker != NULL);
    /* What the program sets stays, even if the thread has not run yet. */
    CHECK(pthread_setname_np(get_call_rcu_thread(worker), "mine") == 0);
    set_thread_call_rcu_data(worker);
    call_rcu(&heads[1], takes_over_all);
    rcu_barrier();
    CHECK(LOAD(called) == 2);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(worker);
    rcu_unregister_thread();
    return unused;
}

int main(void)
{
    pthread_t thread;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CHECK(pthread_create(&thread, NULL, calls, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
