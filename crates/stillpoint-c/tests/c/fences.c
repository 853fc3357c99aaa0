/* The kernel refuses the fence after a domain was made. No wait says that a grace period is over, and each has an errno of its own. */
#include "check.h"
#include "filter.h"

#include <pthread.h>

static struct still_domain *domain;
static int may_fence;

/* A thread that began before the filter, and may fence. */
static void *fences(void *unused)
{
    while (!__atomic_load_n(&may_fence, __ATOMIC_SEQ_CST))
        sched_yield();
    CHECK(still_synchronize(domain, STILL_FOREVER) == 0);
    return unused;
}

/* A reader of another thread that relies on the writers' fences, and has loaded something. Without one, no fence is needed. */
static pthread_barrier_t there, done;

static void *sleeps(void *unused)
{
    struct still_reader *reader = still_reader_new(domain);
    CHECK(reader != NULL);
    still_pin(reader);
    still_unpin(reader);
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&done);
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

#define NOT_OVER(call) REFUSED(call, -EOPNOTSUPP, "no grace period can complete: membarrier was refused (Operation not permitted")

int main(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = STILL_MODE_ASYMMETRIC;
    domain = still_domain_new(&options);
    if (domain == NULL && errno == EOPNOTSUPP) {
        printf("skipped: in fence mode asymmetric: %s\n", still_error());
        return 0;
    }
    pthread_t reader;
    CHECK(pthread_barrier_init(&there, NULL, 2) == 0 && pthread_barrier_init(&done, NULL, 2) == 0);
    CHECK(pthread_create(&reader, NULL, sleeps, NULL) == 0);
    pthread_barrier_wait(&there);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    CHECK(qsbr != NULL && still_offline(qsbr) == 0);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    struct still_queue *queue = still_queue_new(domain);
    CHECK(reclaimer != NULL && queue != NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fences, NULL) == 0);

    refuse_membarrier();
    uint64_t token = still_start(domain);
    CHECK(token != 0);
    struct object *retired = make(1), *left = make(2), *pushed = make(3);
    CHECK(still_retire(reclaimer, retired, sizeof *retired, destroy, NULL) == 0);
    CHECK(still_domain_retire(domain, left, sizeof *left, destroy, NULL) == 0);
    CHECK(still_call(queue, &pushed->callback.callback, called) == 0);
    NOT_OVER(still_check(domain, token));
    NOT_OVER(still_wait(domain, token, STILL_FOREVER));
    NOT_OVER(still_wait(domain, token, 0));
    NOT_OVER(still_synchronize(domain, STILL_FOREVER));
    NOT_OVER(still_synchronize(domain, 1000000));
    NOT_OVER(still_barrier(domain, STILL_FOREVER));
    NOT_OVER(still_barrier(domain, 1000000));
    NOT_OVER(still_qsbr_synchronize(qsbr, STILL_FOREVER));
    NOT_OVER(still_flush(reclaimer, STILL_FOREVER));
    NOT_OVER(still_flush(reclaimer, 1000000));
    NOT_OVER(still_queue_barrier(queue, STILL_FOREVER));
    NOT_OVER(still_queue_barrier(queue, 1000000));
    CHECK(still_poll(reclaimer, STILL_ALL) == 0 && still_queue_poll(queue, STILL_ALL) == 0);
    struct still_stats stats;
    stats.size = sizeof stats;
    CHECK(still_domain_stats(domain, &stats) == 0 && stats.fence_error == EPERM);
    CHECK(retired->value == 1 && left->value == 2 && pushed->value == 3);

    /* The fence of another thread ends the grace period, of this thread as well. */
    __atomic_store_n(&may_fence, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(still_check(domain, token) == 1 && still_wait(domain, token, STILL_FOREVER) == 0);

    CHECK(still_queue_free(queue) == 0 && still_reclaimer_free(reclaimer) == 0 && still_qsbr_free(qsbr) == 0);
    pthread_barrier_wait(&done);
    CHECK(pthread_join(reader, NULL) == 0 && still_domain_free(domain) == 0);
    CHECK(destroyed() == 3);
    return 0;
}
