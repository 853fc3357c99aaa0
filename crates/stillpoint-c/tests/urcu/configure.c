/* Tests of the configuration before the first use, and of the domain after it. */
#include "flavour.h"

static int stalls;
static char name[16];

static void stalled(const struct still_stall *stall, void *context) STILL_NOEXCEPT
{
    CHECK(context == &stalls);
    if (ADD(stalls, 1) == 1)
        memcpy(name, stall->name, sizeof name);
}

static void *holds_up(void *argument)
{
    (void)argument;
    CHECK(pthread_setname_np(pthread_self(), "sluggard") == 0);
    rcu_register_thread();
    rcu_read_lock();
    AWAIT(LOAD(stalls) > 0);
    rcu_read_unlock();
    rcu_unregister_thread();
    return NULL;
}

int main(void)
{
    struct still_domain_options options;
    memset(&options, 0, sizeof options);
    CHECK(still_urcu_configure(FLAVOUR, &options) == -EINVAL);
    options.size = sizeof options;
    CHECK(still_urcu_configure(4, &options) == -EINVAL);
    CHECK(strstr(still_error(), "no flavour 4 of liburcu: use STILL_URCU_MEMB") != NULL);
    options.mode = 9;
    CHECK(still_urcu_configure(FLAVOUR, &options) == -EINVAL);
#ifdef FLAVOUR_MB
    options.mode = 2;
    CHECK(still_urcu_configure(FLAVOUR, &options) == -EINVAL);
#endif
    options.mode = 0;
    options.stall_after = 1000000;
    options.on_stall = stalled;
    options.context = &stalls;
    CHECK(still_urcu_configure(FLAVOUR, &options) == 0);
    CHECK(still_urcu_configure(FLAVOUR, &options) == 0);

    pthread_t thread = started(holds_up, NULL);
    struct still_domain *domain = still_urcu_domain(FLAVOUR);
    CHECK(domain != NULL);
    CHECK(still_urcu_configure(FLAVOUR, &options) == -EBUSY);
    while (LOAD(stalls) == 0)
        synchronize_rcu();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(name, "sluggard") == 0);
    struct still_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    CHECK(still_domain_stats(domain, &stats) == 0 && stats.grace_periods > 0);
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
