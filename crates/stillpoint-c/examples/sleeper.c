/* An event loop with a reader that protects single objects, and goes offline before it sleeps.
 *
 * Such a reader holds nothing up while its thread sleeps. But the writer does not know that the thread sleeps, and issues a heavy fence
 * for each grace period, which interrupts the processors that run the process. One call before epoll_wait spares the fences. The next
 * still_protect brings the reader back.
 *
 *     cc sleeper.c $(pkg-config --cflags --libs stillpoint) -pthread && ./a.out
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
static int wake, resting;

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

/* Adds one to an eventfd. */
static void tell(int event)
{
    uint64_t one = 1;
    if (write(event, &one, sizeof one) != sizeof one)
        abort();
}

/* Waits until an eventfd is not 0. */
static void hear(int event)
{
    uint64_t number;
    while (read(event, &number, sizeof number) != sizeof number)
        if (errno != EINTR)
            abort();
}

static void *loop(void *handled)
{
    struct still_reader *reader = still_reader_new(domain);
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    if (reader == NULL || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, wake, &event) < 0)
        fail("no loop");
    for (int i = 0; i < EVENTS; i++) {
        still_reader_offline(reader); /* no writer fences for it while the thread sleeps */
        tell(resting);
        while (epoll_wait(epoll, &event, 1, -1) < 0)
            if (errno != EINTR)
                abort();
        hear(wake);
        struct still_protected found = still_protect(reader, &route); /* the reader is back */
        if (((struct route *)found.object)->hops < 0)
            abort();
        ++*(int *)handled;
        still_release(found);
    }
    close(epoll);
    still_reader_free(reader);
    return NULL;
}

int main(void)
{
    domain = still_domain_new(NULL);
    struct still_reclaimer *reclaimer = domain == NULL ? NULL : still_reclaimer_new(domain, NULL);
    wake = eventfd(0, 0);
    resting = eventfd(0, 0);
    if (reclaimer == NULL || wake < 0 || resting < 0)
        fail("no domain");
    int handled = 0, destroyed = 0;
    still_store(&route, calloc(1, sizeof *route));
    pthread_t thread;
    if (pthread_create(&thread, NULL, loop, &handled) != 0)
        abort();
    for (int i = 0; i < EVENTS; i++) {
        hear(resting);
        struct route *made = calloc(1, sizeof *made);
        if (made == NULL)
            abort();
        struct route *old = still_exchange(&route, made);
        if (still_retire(reclaimer, old, sizeof *old, destroy, &destroyed) < 0)
            fail("not retired");
        still_poll(reclaimer, STILL_ALL);
        tell(wake);
    }
    pthread_join(thread, NULL);
    if (still_flush(reclaimer, STILL_FOREVER) < 0)
        fail("not flushed");
    struct still_stats stats = { .size = sizeof stats };
    if (still_domain_stats(domain, &stats) < 0)
        fail("no figures");
    printf("%d events, %d routes freed, %llu heavy fences\n", handled, destroyed, (unsigned long long)stats.heavy_fences);
    free(route);
    close(wake);
    close(resting);
    still_reclaimer_free(reclaimer);
    still_domain_free(domain);
    return handled == EVENTS && destroyed == EVENTS && stats.heavy_fences == 0 ? 0 : 1;
}
