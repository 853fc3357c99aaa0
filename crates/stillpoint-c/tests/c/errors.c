/* Tests of errors: which calls are refused, and with which messages. */
#include "check.h"

#include <pthread.h>

static void *frees_it(void *reader)
{
    REFUSED(still_reader_free((struct still_reader *)reader), -EPERM, "another thread");
    return NULL;
}

static void *goes_offline(void *qsbr)
{
    REFUSED(still_offline((struct still_qsbr *)qsbr), -EPERM, "another thread");
    REFUSED(still_qsbr_free((struct still_qsbr *)qsbr), -EPERM, "another thread");
    return NULL;
}

static void on_another_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void options(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.size = 8;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "size 8") != NULL);
    options.size = sizeof options;
    options.mode = 7;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "no still_mode 7: set `mode` to STILL_MODE_BEST") != NULL);
    options.mode = STILL_MODE_SYMMETRIC;
    options.boost = 9;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    options.boost = STILL_BOOST_OFF;
    options.boost_fallback = 9;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    options.boost_fallback = STILL_BOOST_OFF;
    options.reserved = 1;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "`reserved` is 1: set it to 0") != NULL);
    options.reserved = 0;
    options.stall_after = -2;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "-2 ns is negative") != NULL);
    options.stall_after = STILL_FOREVER;
    options.name = "routes";
    struct still_domain *domain = still_domain_new(&options);
    CHECK(domain != NULL);

    struct still_reclaimer_options reclaimer = STILL_RECLAIMER_OPTIONS_INIT;
    reclaimer.when_full = 9;
    CHECK(still_reclaimer_new(domain, &reclaimer) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "no still_when_full 9: set `when_full` to STILL_FULL_HAND_BACK") != NULL);
    reclaimer.when_full = 0;
    reclaimer.size = 0;
    CHECK(still_reclaimer_new(domain, &reclaimer) == NULL && errno == EINVAL);

    struct still_stats stats;
    memset(&stats, 0, sizeof stats);
    REFUSED(still_domain_stats(domain, &stats), -EINVAL, "sizeof");
    REFUSED(still_domain_stats(domain, NULL), -EINVAL, "NULL");
    REFUSED(still_check(domain, 1000), -EINVAL, "has not started grace period 1000: pass what still_start returned");
    REFUSED(still_check(domain, 0), -EINVAL, "has not started grace period 0"); /* also one that is less than those that are over */
    REFUSED(still_wait(domain, 0, 0), -EINVAL, "grace period 0");
    CHECK(still_domain_free(domain) == 0);
}

static void handles(void)
{
    struct still_domain *domain = still_domain_new(NULL);
    struct still_reader *reader = still_reader_new(domain);
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    struct still_queue *queue = still_queue_new(domain);
    struct still_hold *hold = still_hold_new(domain);
    CHECK(domain && reader && qsbr && reclaimer && queue && hold);

    /* NULL. */
    REFUSED(still_domain_free(NULL), -EINVAL, "NULL");
    REFUSED(still_synchronize(NULL, STILL_FOREVER), -EINVAL, "NULL");
    REFUSED(still_poll(NULL, STILL_ALL), -EINVAL, "NULL");
    REFUSED(still_call(NULL, NULL, called), -EINVAL, "NULL");
    REFUSED(still_background_free(NULL, 0), -EINVAL, "NULL");
    CHECK(still_reader_new(NULL) == NULL && errno == EINVAL);
    CHECK(still_start(NULL) == 0 && errno == EINVAL);
    struct still_domain *found = domain;
    REFUSED(still_hold_protect(NULL, &domain, &found), -EINVAL, "NULL");
    CHECK(found == NULL);
    REFUSED(still_hold_protect(hold, (struct still_domain **)NULL, &found), -EINVAL, "NULL");
    REFUSED(still_hold_protect(hold, &domain, (struct still_domain **)NULL), -EINVAL, "NULL");

    /* A handle of another kind. */
    REFUSED(still_poll((struct still_reclaimer *)(void *)domain, STILL_ALL), -EINVAL, "another kind");
    REFUSED(still_reader_free((struct still_reader *)(void *)qsbr), -EINVAL, "another kind");
    REFUSED(still_synchronize((struct still_domain *)(void *)reader, 0), -EINVAL, "another kind");
    REFUSED(still_poll((struct still_reclaimer *)(void *)((char *)(void *)reclaimer + 1), 1), -EINVAL, "is not");

    /* Another thread. */
    on_another_thread(frees_it, reader);
    on_another_thread(goes_offline, qsbr);

    /* NULL cannot be retired. */
    int object;
    REFUSED(still_retire(reclaimer, NULL, 1, destroy, NULL), -EINVAL, "NULL");
    REFUSED(still_retire(reclaimer, &object, 1, NULL, NULL), -EINVAL, "destructor");
    REFUSED(still_domain_retire(domain, NULL, 1, destroy, NULL), -EINVAL, "NULL");
    REFUSED(still_call(queue, NULL, called), -EINVAL, "callback");
    struct still_object_callback callback;
    REFUSED(still_call(queue, &callback.callback, NULL), -EINVAL, "function");
    REFUSED(still_call_object(queue, &callback, NULL, called), -EINVAL, "object");
    REFUSED(still_queue_resume(queue), -EINVAL, "not paused");

    /* Freed. */
    CHECK(still_hold_free(hold) == 0);
    REFUSED(still_hold_free(hold), -EBADF, "freed");
    REFUSED(still_hold_protect(hold, &domain, &found), -EBADF, "freed");
    CHECK(still_queue_free(queue) == 0);
    REFUSED(still_queue_poll(queue, 1), -EBADF, "freed");
    CHECK(still_reclaimer_free(reclaimer) == 0);
    REFUSED(still_pending(reclaimer), -EBADF, "freed");
    CHECK(still_qsbr_free(qsbr) == 0);
    REFUSED(still_offline(qsbr), -EBADF, "freed");
    CHECK(still_reader_free(reader) == 0);
    REFUSED(still_reader_free(reader), -EBADF, "freed");
    CHECK(still_domain_free(domain) == 0);
    REFUSED(still_domain_free(domain), -EBADF, "freed");
}

static void layouts(void)
{
    struct still_domain *domain = still_domain_new(NULL);
    CHECK(still_reader_new_(domain, STILL_LAYOUT + 1) == NULL && errno == EPROTO);
    CHECK(strstr(still_error(), "recompile") != NULL);
    CHECK(still_qsbr_new_(domain, 0) == NULL && errno == EPROTO);
    CHECK(still_domain_free(domain) == 0);
}

/* There may be more handles than fit in a chunk, each at its own place. Places of freed handles are used again. */
static void many(void)
{
    enum { MANY = 1000 };
    static struct still_domain *domains[MANY];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            domains[i] = still_domain_new(NULL);
            CHECK(domains[i] != NULL);
        }
        for (int i = 0; i < MANY; i++)
            CHECK(still_start(domains[i]) == 2 + 0 * (uint64_t)i);
        for (int i = 0; i < MANY; i++)
            CHECK(still_domain_free(domains[i]) == 0);
    }
}

int main(void)
{
    CHECK(strcmp(still_error(), "") == 0);
    CHECK(strcmp(still_version(), "0.1.0") == 0);
    options();
    handles();
    layouts();
    many();
    return 0;
}
