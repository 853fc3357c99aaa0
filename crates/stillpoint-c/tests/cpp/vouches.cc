// For whom a thread that waits or reclaims issues a fence: readers that have loaded something, and have not reported since.
#include <atomic>
#include <functional>
#include <thread>

#include "check.hpp"
#include "stillpoint.h"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

struct object : sp::hazard_pointer_obj_base<object>, Witness {};

bool is_asymmetric;

/// Starts a grace period, calls the function, and returns how many fences end the grace period.
uint64_t fences_after(still_domain *(*handle)(), const std::function<void()> &step)
{
    still_domain *const domain = handle();
    const uint64_t token = still_start(domain);
    step();
    const uint64_t before = stats(handle()).heavy_fences;
    CHECK(still_check(domain, token) == 1);
    CHECK(still_domain_free(domain) == 0);
    return stats(handle()).heavy_fences - before;
}

void nothing() {}

/// A hazard pointer belongs to no thread, so this thread fences for its own ones.
void hazard_pointers()
{
    const auto fences = [](const std::function<void()> &step) { return fences_after(sp::hazard_pointer_domain_handle, step); };
    const uint64_t one = is_asymmetric ? 1 : 0;
    CHECK(fences(nothing) == 0);
    std::atomic<object *> link{new object}, null{nullptr};
    {
        sp::hazard_pointer hazard = sp::make_hazard_pointer();
        CHECK(fences(nothing) == one);
        const std::function<void()> reports[] = {
            [&] { CHECK(hazard.protect(link) == link); },
            [&] { hazard.reset_protection(link.load()); },
            [&] { CHECK(hazard.protect(null) == nullptr); },
            [&] {
                object *ptr = nullptr;
                CHECK(!hazard.try_protect(ptr, link) && ptr == link);
            },
            [&] { sp::make_hazard_pointer().swap(hazard); },
        };
        for (const std::function<void()> &report : reports) {
            CHECK(fences(report) == 0);
            CHECK(fences(nothing) == one);
        }
    }
    CHECK(fences(nothing) == 0); // it was given back
    delete link.load();
}

/// A thread with a region, which acts when this thread has started a grace period: a thread needs no fence for its own regions.
void regions()
{
    const uint64_t one = is_asymmetric ? 1 : 0;
    std::atomic<int> wanted{0}, done{0};
    std::thread other([&] {
        for (int step = 1; step <= 5; step++) {
            while (wanted < step)
                sched_yield();
            if (step % 2 == 1)
                sp::rcu_default_domain().lock();
            else
                sp::rcu_default_domain().unlock();
            if (step == 3)
                sp::rcu_default_domain().lock(); // a nested one
            if (step == 4)
                sp::rcu_default_domain().unlock();
            done = step;
        }
        sp::rcu_default_domain().unlock();
    });
    const auto there = [&] {
        const int step = ++wanted;
        while (done < step)
            sched_yield();
    };
    still_domain *const domain = sp::rcu_domain_handle();
    const auto is_held_up = [&] { return still_check(domain, still_start(domain)) == 0; };
    const auto fences = [](const std::function<void()> &step) { return fences_after(sp::rcu_domain_handle, step); };
    CHECK(fences(nothing) == 0);
    for (int times = 0; times < 2; times++) {
        there();
        CHECK(is_held_up());
        CHECK(fences(there) == 0); // the end of the region reports
        CHECK(fences(nothing) == one);
    }
    there();
    other.join();
    CHECK(fences(nothing) == 0);
    CHECK(still_domain_free(domain) == 0);
}

/// Which states need a return, also where no test can stop a thread: in a signal handler that has interrupted one.
void states()
{
    const uint64_t idle = STILL_RCU_IDLE_, high = uint64_t{1} << 62;
    for (const uint64_t state : {idle + 1, idle + 2, idle + high})
        CHECK(sp::detail::is_here(state));
    for (const uint64_t state : {idle, ~uint64_t{0}, uint64_t{0}, uint64_t{1}, high})
        CHECK(!sp::detail::is_here(state));
}

} // namespace

int main()
{
    still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = STILL_MODE_ASYMMETRIC;
    still_domain *const asymmetric = still_domain_new(&options);
    is_asymmetric = asymmetric != nullptr;
    CHECK(!is_asymmetric || still_domain_free(asymmetric) == 0);
    states();
    hazard_pointers();
    regions();
    CHECK(alive == 0);
}
