/* The kernel refuses the fence to some threads. Functions that return nothing keep waiting and trying, and report once. */
#include "../c/filter.h"
#include "flavour.h"

static int reports, is_done, called, is_there, leaves;
static char last[512];

static void noted(const char *report, void *context) STILL_NOEXCEPT
{
    CHECK(context == &reports && strlen(report) < sizeof last);
    memcpy(last, report, strlen(report) + 1);
    ADD(reports, 1);
}

static void *synchronizes(void *argument)
{
    refuse_membarrier();
    synchronize_rcu();
    STORE(is_done, 1);
    return argument;
}

static void counted(struct rcu_head *head)
{
    free(head);
    ADD(called, 1);
}

/* The worker's thread has the filter as well. */
static void *waits_for_callbacks(void *argument)
{
    refuse_membarrier();
    rcu_register_thread();
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(own != NULL && head != NULL);
    set_thread_call_rcu_data(own);
    call_rcu(head, counted);
    rcu_barrier();
    CHECK(LOAD(called) == 1);
    STORE(is_done, 1);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);
    rcu_unregister_thread();
    return argument;
}

/* A reader of another thread that relies on the writers' fences, and has loaded something. Without one, no fence is needed. */
static void *sleeps(void *argument)
{
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_unlock();
    STORE(is_there, 1);
    AWAIT(LOAD(leaves));
    rcu_unregister_thread();
    return argument;
}

int main(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = STILL_MODE_ASYMMETRIC;
    int answer = still_urcu_configure(FLAVOUR, &options);
    if (answer == -EOPNOTSUPP) {
        printf("skipped: in fence mode asymmetric: %s\n", still_error());
        return 0;
    }
    CHECK(answer == 0);
    still_on_report(noted, &reports);
    pthread_t reader = started(sleeps, NULL);
    AWAIT(LOAD(is_there));

    pthread_t thread = started(synchronizes, NULL);
    AWAIT(LOAD(reports) > 0);
    CHECK(strstr(last, "synchronize_rcu: no grace period can complete") != NULL && LOAD(is_done) == 0);
    /* One fence of another thread is enough: the wait is for the same grace period in every try. */
    synchronize_rcu();
    CHECK(pthread_join(thread, NULL) == 0 && LOAD(is_done) == 1 && LOAD(reports) == 1);

    STORE(is_done, 0);
    thread = started(waits_for_callbacks, NULL);
    AWAIT(LOAD(reports) > 1);
    CHECK(strstr(last, "rcu_barrier: no grace period can complete") != NULL);
    CHECK(LOAD(is_done) == 0 && LOAD(called) == 0);
    while (LOAD(is_done) == 0)
        synchronize_rcu();
    CHECK(pthread_join(thread, NULL) == 0 && LOAD(reports) == 2);
    STORE(leaves, 1);
    CHECK(pthread_join(reader, NULL) == 0);
    return 0;
}
