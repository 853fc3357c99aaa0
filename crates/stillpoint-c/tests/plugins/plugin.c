/* A plugin that reads and waits by stillpoint.h, and by the drop-in for one of liburcu's flavours. */
#include <errno.h>

#include "stillpoint.h"

#ifdef FLAVOUR_MB
#define RCU_MB
#include <urcu.h>
#elif defined(FLAVOUR_QSBR)
#include <urcu-qsbr.h>
#elif defined(FLAVOUR_BP)
#include <urcu-bp.h>
#elif defined(FLAVOUR_MEMB)
#include <urcu.h>
#endif

int works(void);

/* Returns 0, or the number of what failed. */
int works(void)
{
#if defined(FLAVOUR_MB) || defined(FLAVOUR_QSBR) || defined(FLAVOUR_BP) || defined(FLAVOUR_MEMB)
    rcu_register_thread();
    rcu_read_lock();
    if (!rcu_read_ongoing())
        return 1;
    rcu_read_unlock();
    rcu_quiescent_state();
    synchronize_rcu();
    rcu_unregister_thread();
#endif
    struct still_domain *domain = still_domain_new(NULL);
    struct still_reader *reader = domain == NULL ? NULL : still_reader_new(domain);
    if (reader == NULL)
        return 2;
    still_pin(reader);
    if (still_synchronize(domain, STILL_FOREVER) != -EDEADLK)
        return 3;
    still_unpin(reader);
    if (still_synchronize(domain, STILL_FOREVER) != 0)
        return 4;
    if (still_reader_free(reader) != 0 || still_domain_free(domain) != 0)
        return 5;
    return 0;
}
