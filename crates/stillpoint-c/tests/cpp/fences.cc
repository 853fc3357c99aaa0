// The kernel refuses the fence to some threads. rcu_synchronize and rcu_barrier keep waiting and trying, and report once.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "../c/filter.h"
#include "check.hpp"
#include "stillpoint.h"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

static std::atomic<int> reports, deleted;
static std::atomic<bool> is_done;

static void noted(const char *report, void *) noexcept
{
    CHECK(std::strstr(report, "no grace period can complete") != nullptr);
    reports++;
}

struct object : sp::rcu_obj_base<object> {
    ~object() { deleted++; }
};

int main()
{
    still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = STILL_MODE_ASYMMETRIC;
    still_domain *asymmetric = still_domain_new(&options);
    if (asymmetric == nullptr && errno == EOPNOTSUPP) {
        std::printf("skipped: in fence mode asymmetric: %s\n", still_error());
        return 0;
    }
    CHECK(still_domain_free(asymmetric) == 0);
    still_on_report(noted, nullptr);
    // A reader of another thread that relies on the writers' fences, and has loaded something. Without one, no fence is needed.
    Gate there, done;
    std::thread reader([&] {
        sp::rcu_default_domain().lock();
        sp::rcu_default_domain().unlock();
        there.open();
        done.pass();
    });
    there.pass();

    std::thread waits([] {
        refuse_membarrier();
        sp::rcu_synchronize();
        is_done = true;
    });
    while (reports == 0)
        std::this_thread::yield();
    CHECK(!is_done);
    // One fence of another thread is enough: the wait is for the same grace period in every try.
    sp::rcu_synchronize();
    waits.join();
    CHECK(is_done);

    is_done = false;
    std::thread waits_for_deleters([] {
        refuse_membarrier();
        (new object)->retire(); // starts the thread that runs deleters, which has the filter as well
        sp::rcu_barrier();
        CHECK(deleted == 1);
        is_done = true;
    });
    while (!is_done)
        sp::rcu_synchronize();
    waits_for_deleters.join();
    CHECK(reports == 1);
    done.open();
    reader.join();
}
