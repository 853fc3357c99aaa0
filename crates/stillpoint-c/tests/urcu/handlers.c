/* Tests of threads whose first section is in a signal handler. Such a section allocates nothing. */
#include "flavour.h"

#include <dlfcn.h>
#include <signal.h>

static __thread int is_in_handler;

void *malloc(size_t size)
{
    typedef void *malloc_fn(size_t);
    static malloc_fn *real;
    if (is_in_handler)
        _exit(9);
    if (real == NULL) {
        void *found = dlsym(RTLD_NEXT, "malloc");
        memcpy(&real, &found, sizeof found);
    }
    return real(size);
}

static int *shared, inside, leave, handled;

static void handler(int signal)
{
    (void)signal;
    is_in_handler = 1;
    rcu_read_lock();
    CHECK(rcu_read_ongoing());
    int *found = rcu_dereference(shared);
    ADD(inside, 1);
    AWAIT(LOAD(leave));
    CHECK(*found == 7);
    rcu_read_unlock();
    CHECK(!rcu_read_ongoing());
    is_in_handler = 0;
    ADD(handled, 1);
}

static void *plain(void *argument)
{
    (void)argument;
    CHECK(raise(SIGUSR1) == 0);
    return NULL;
}

static int is_called;

static void called(struct rcu_head *head)
{
    free(head);
    ADD(is_called, 1);
}

/* There are far more threads at a time than readers in reserve. A worker refills the reserve. */
static void many(void)
{
    enum { THREADS = 200 };
    pthread_t threads[THREADS];
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    call_rcu(head, called);
    rcu_barrier();
    CHECK(LOAD(is_called) == 1);
    STORE(inside, 0);
    STORE(leave, 0);
    struct still_domain *domain = still_urcu_domain(FLAVOUR);
    struct still_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    CHECK(domain != NULL);
    for (int each = 0; each < THREADS; each++) {
        threads[each] = started(plain, NULL);
        AWAIT(LOAD(inside) == each + 1);
        /* The readers are the 32 in reserve, and those of these threads, of the worker, and of this thread. */
        AWAIT(still_domain_stats(domain, &stats) == 0 && (int)stats.readers >= each + 1 + 32);
    }
    STORE(leave, 1);
    for (int each = 0; each < THREADS; each++)
        CHECK(pthread_join(threads[each], NULL) == 0);
    CHECK(still_domain_free(domain) == 0);
}

int main(void)
{
    static int seven = 7;
    rcu_assign_pointer(shared, &seven);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    enum { THREADS = 16 };
    for (int round = 1; round <= 10; round++) {
        pthread_t threads[THREADS];
        STORE(inside, 0);
        STORE(leave, 0);
        for (int each = 0; each < THREADS; each++)
            threads[each] = started(plain, NULL);
        AWAIT(LOAD(inside) == THREADS);
        struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
        CHECK(!poll_state_synchronize_rcu(state));
        STORE(leave, 1);
        for (int each = 0; each < THREADS; each++)
            CHECK(pthread_join(threads[each], NULL) == 0);
        CHECK(poll_state_synchronize_rcu(state));
        CHECK(LOAD(handled) == THREADS * round);
    }
    many();
    return 0;
}
