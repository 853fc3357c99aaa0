/* Without memory, threads register, read and wait, as with liburcu. */
#include "../c/refusing.h"
#include "flavour.h"

#include <sys/wait.h>

enum { THREADS = 64 };

static int waits, may_go, is_over, was_called;
static int value = 7, other = 8, *shared = &value;

static void note(struct rcu_head *head)
{
    free(head);
    ADD(was_called, 1);
}

static void *uses(void *argument)
{
    (void)argument;
    ADD(waits, 1);
    AWAIT(LOAD(may_go));
    rcu_register_thread();
    rcu_read_lock();
    int *found = rcu_dereference(shared);
    CHECK(*found == 7 || *found == 8);
    rcu_read_unlock();
    rcu_quiescent_state();
    synchronize_rcu();
    ADD(waits, 1);
#if IS_QSBR
    rcu_thread_offline();
#endif
    AWAIT(LOAD(is_over));
#if IS_QSBR
    rcu_thread_online();
#endif
    rcu_unregister_thread();
    return NULL;
}

/* The main thread and many others do what a program does first, from the request with this number on without memory. */
static int run(int first, int all)
{
    static pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = started(uses, NULL);
    AWAIT(LOAD(waits) == THREADS);
    refuse_from(first, all);
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_unlock();
    struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
    rcu_xchg_pointer(&shared, &other);
    rcu_quiescent_state();
    synchronize_rcu();
    CHECK(poll_state_synchronize_rcu(state));
#if IS_QSBR
    rcu_thread_offline();
#endif
    STORE(may_go, 1);
    AWAIT(LOAD(waits) == 2 * THREADS);
    /* It may say that there is no memory, as with liburcu. */
    int answer = rcu_defer_register_thread();
    CHECK(answer == 0 || answer == -ENOMEM);
    int requests = refuse_nothing();
    if (answer == 0)
        rcu_defer_unregister_thread();
    /* With memory, everything works. */
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL && rcu_defer_register_thread() == 0);
    call_rcu(head, note);
    rcu_barrier();
    CHECK(LOAD(was_called) == 1);
    rcu_defer_unregister_thread();
#if IS_QSBR
    rcu_thread_online();
#endif
    rcu_unregister_thread();
    STORE(is_over, 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return requests;
}

int main(void)
{
    for (int all = 0; all < 2; all++) {
        for (int first = 0;; first++) {
            int ends[2], status, requests;
            CHECK(pipe(ends) == 0);
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                alarm(60);
                requests = run(first, all);
                CHECK(write(ends[1], &requests, sizeof requests) == (ssize_t)sizeof requests);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "without request %d%s: status %x\n", first, all ? " and all later ones" : "", (unsigned)status);
                return 1;
            }
            CHECK(read(ends[0], &requests, sizeof requests) == (ssize_t)sizeof requests);
            CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
            /* Each thread makes the same requests as the first ones. */
            if (first >= requests || first >= 20)
                break;
        }
    }
    return 0;
}
