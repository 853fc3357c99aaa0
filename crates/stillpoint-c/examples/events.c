/* An event loop with a QSBR reader: it reports a quiescent state after each event, and is offline while it sleeps.
 *
 * A thread that sleeps in epoll_wait while its reader is online holds up all frees of the domain. This is the usual defect of such
 * programs. A stall hook reports it.
 *
 *     cc events.c $(pkg-config --cflags --libs stillpoint) -pthread && ./a.out
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stillpoint.h"

enum { EVENTS = 1000 };

struct route {
    int hops;
};

static struct still_domain *domain;
static struct route *route;
static int wake;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, still_error());
    exit(1);
}

static void destroy(void *old, void *context)
{
    ((struct route *)old)->hops = -1; /* a reader that still uses the route notices this */
    free(old);
    ++*(int *)context;
}

static void on_stall(const struct still_stall *stall, void *context)
{
    (void)context;
    fprintf(stderr, "thread %u (%s) holds up %llu objects\n", stall->thread, stall->name,
            (unsigned long long)stall->objects);
}

static void *loop(void *handled)
{
    struct still_qsbr *reader = still_qsbr_new(domain);
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    if (reader == NULL || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, wake, &event) < 0)
        fail("no loop");
    for (uint64_t all = 0; all < EVENTS;) {
        still_offline(reader); /* no grace period waits for an offline reader */
        while (epoll_wait(epoll, &event, 1, -1) < 0)
            if (errno != EINTR)
                abort();
        still_online(reader);
        uint64_t number = 0;
        if (read(wake, &number, sizeof number) != sizeof number)
            abort();
        for (uint64_t i = 0; i < number; i++) {
            const struct route *taken = still_load(&route); /* valid until the next report */
            if (taken->hops < 0)
                abort();
            ++*(int *)handled;
            still_quiescent(reader); /* the route is not used any more */
        }
        all += number;
    }
    close(epoll);
    still_qsbr_free(reader);
    return NULL;
}

int main(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.name = "routes";
    options.stall_after = 1000000000;
    options.on_stall = on_stall;
    domain = still_domain_new(&options);
    struct still_reclaimer *reclaimer = domain == NULL ? NULL : still_reclaimer_new(domain, NULL);
    wake = eventfd(0, 0);
    if (reclaimer == NULL || wake < 0)
        fail("no domain");
    int handled = 0, destroyed = 0;
    still_store(&route, calloc(1, sizeof *route));
    pthread_t thread;
    if (pthread_create(&thread, NULL, loop, &handled) != 0)
        abort();
    for (uint64_t one = 1, i = 0; i < EVENTS; i++) {
        struct route *made = calloc(1, sizeof *made);
        if (made == NULL)
            abort();
        struct route *old = still_exchange(&route, made);
        if (still_retire(reclaimer, old, sizeof *old, destroy, &destroyed) < 0)
            fail("not retired");
        still_poll(reclaimer, STILL_ALL);
        if (write(wake, &one, sizeof one) != sizeof one)
            abort();
    }
    pthread_join(thread, NULL);
    if (still_flush(reclaimer, STILL_FOREVER) < 0)
        fail("not flushed");
    printf("%d events, %d routes freed\n", handled, destroyed);
    free(route);
    close(wake);
    still_reclaimer_free(reclaimer);
    still_domain_free(domain);
    return handled == EVENTS && destroyed == EVENTS ? 0 : 1;
}
