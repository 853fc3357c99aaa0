/* For a plugin, or a program, with a copy of the library. */
#include "copy.h"

#include <urcu.h>

/* Waits for readers of a flavour of liburcu. */
static void flavour(void)
{
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_unlock();
    synchronize_rcu();
    rcu_unregister_thread();
}

/* Of rte_timer.h, which is for lcores only. */
int still_rte_timer_init_(uint32_t lcores);

/* Waits within a region, which is refused, and after it. */
static int reads(struct still_reader *reader, struct still_domain *domain)
{
    still_pin(reader);
    int within = still_synchronize(domain, STILL_FOREVER);
    still_unpin(reader);
    return within != -EDEADLK || still_synchronize(domain, STILL_FOREVER) != 0;
}

const struct copy *copy(void)
{
    static const struct copy copy = {
        still_domain_default, still_domain_new, still_domain_free, still_synchronize, still_reader_new_, still_reader_free,
        still_error,          still_on_report,  reads,             flavour,
        still_rte_timer_init_,
    };
    return &copy;
}
