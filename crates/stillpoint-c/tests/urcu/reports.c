/* Errors that cannot be returned go to the hook. Nothing goes to standard error. */
#include "flavour.h"

#include <signal.h>

#if defined(FLAVOUR_MB)
#define NAME "urcu-mb"
#elif defined(FLAVOUR_QSBR)
#define NAME "urcu-qsbr"
#elif defined(FLAVOUR_BP)
#define NAME "urcu-bp"
#else
#define NAME "urcu-memb"
#endif

static int reports;
static char last[512];

static void reported(const char *report, void *context) STILL_NOEXCEPT
{
    CHECK(context == &reports);
    CHECK(strlen(report) < sizeof last && strchr(report, '\n') == NULL);
    memcpy(last, report, strlen(report) + 1);
    /* still_error() has the text, as without a hook. */
    CHECK(strcmp(still_error(), report) == 0);
    ADD(reports, 1);
    /* A hook may call the library, and may misuse it. Such a misuse does not call the hook again. */
    call_rcu_after_fork_parent();
    CHECK(strstr(still_error(), "after_fork_parent") != NULL && strstr(report, "after_fork_parent") == NULL);
}

/* Runs a statement with a hook and without one. The report must contain these words. */
#define REPORTED(statement, words)                                                                         \
    do {                                                                                                   \
        still_on_report(NULL, NULL);                                                                       \
        statement;                                                                                         \
        CHECK(strstr(still_error(), words) != NULL);                                                       \
        still_on_report(noted, &reports);                                                                  \
        int before_ = LOAD(reports);                                                                       \
        statement;                                                                                         \
        CHECK(LOAD(reports) == before_ + 1 && strstr(last, words) != NULL);                                \
    } while (0)

static void noted(const char *report, void *context) STILL_NOEXCEPT
{
    CHECK(context == &reports && strcmp(still_error(), report) == 0 && strlen(report) < sizeof last);
    memcpy(last, report, strlen(report) + 1);
    ADD(reports, 1);
}

static int called;

static void misuses(struct rcu_head *head)
{
    free(head);
    REPORTED(rcu_barrier(), "rcu_barrier was called by a callback");
    REPORTED(call_rcu_before_fork(), "call_rcu_before_fork was called by a callback");
    REPORTED(call_rcu_data_free(get_thread_call_rcu_data()), "cannot free the worker that runs it");
    ADD(called, 1);
}

static void defers(void *argument)
{
    (void)argument;
    REPORTED(rcu_defer_barrier(), "rcu_defer_barrier was called by a callback");
    REPORTED(rcu_defer_barrier_thread(), "rcu_defer_barrier was called by a callback");
    ADD(called, 1);
}

#ifndef FLAVOUR_QSBR
static void ends_section(int signal)
{
    (void)signal;
    rcu_read_unlock();
}

/* The wait never ends, unless a signal handler ends the section. */
static void *waits_for_itself(void *argument)
{
    (void)argument;
    rcu_register_thread();
    rcu_read_lock();
    synchronize_rcu();
    CHECK(!rcu_read_ongoing());
    rcu_unregister_thread();
    return NULL;
}
#endif

static void may_be_cancelled(const char *report, void *context) STILL_NOEXCEPT
{
    noted(report, context);
    pthread_testcancel();
}

/* A thread is not cancelled while the library calls the hook. */
static void *is_cancelled(void *argument)
{
    (void)argument;
    int before = LOAD(reports);
    CHECK(pthread_cancel(pthread_self()) == 0);
    call_rcu(NULL, misuses);
    CHECK(LOAD(reports) == before + 1);
    STORE(called, 0);
    pthread_testcancel();
    CHECK(0);
    return NULL;
}

int main(void)
{
    rcu_register_thread();
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    /* A worker that is not the default worker, which is never freed. */
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    set_thread_call_rcu_data(own);
    call_rcu(head, misuses);
    rcu_barrier();
    set_thread_call_rcu_data(NULL);
    defer_rcu(defers, NULL);
    rcu_defer_barrier();
    CHECK(LOAD(called) == 2);

    REPORTED(call_rcu(NULL, misuses), NAME ": NULL was passed to call_rcu");
    REPORTED(defer_rcu(NULL, NULL), NAME ": NULL was passed to defer_rcu");
    REPORTED(call_rcu_after_fork_parent(), "call_rcu_after_fork_parent without call_rcu_before_fork");
    REPORTED(call_rcu_after_fork_child(), "call_rcu_after_fork_child without call_rcu_before_fork");
    call_rcu_before_fork();
    REPORTED(call_rcu_before_fork(), "call_rcu_before_fork was called between the hooks of a fork");
    REPORTED(rcu_barrier(), "rcu_barrier was called between the hooks of a fork");
    REPORTED(rcu_defer_barrier(), "rcu_defer_barrier was called between the hooks of a fork");
    call_rcu_after_fork_parent();
    call_rcu_data_free(own);
    REPORTED(call_rcu_data_free(own), "does not exist, or was freed before");
#ifndef FLAVOUR_QSBR
    rcu_read_lock();
    REPORTED(rcu_barrier(), "rcu_barrier was called in a read-side section");
    REPORTED(rcu_defer_barrier(), "rcu_defer_barrier was called in a read-side section");
    rcu_read_unlock();

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = ends_section;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    int before = LOAD(reports);
    pthread_t thread = started(waits_for_itself, NULL);
    AWAIT(LOAD(reports) > before);
    CHECK(strstr(last, "synchronize_rcu: ") != NULL);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(LOAD(reports) == before + 1);
#endif

    still_on_report(may_be_cancelled, &reports);
    void *end;
    CHECK(pthread_join(started(is_cancelled, NULL), &end) == 0 && end == PTHREAD_CANCELED && LOAD(called) == 0);

    still_on_report(reported, &reports);
    int so_far = LOAD(reports);
    call_rcu_data_free(own);
    CHECK(LOAD(reports) == so_far + 1 && strstr(last, "call_rcu_data_free") != NULL);
    call_rcu_data_free(own);
    CHECK(LOAD(reports) == so_far + 2);
    rcu_unregister_thread();
    return 0;
}
