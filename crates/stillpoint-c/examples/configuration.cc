// Many threads read a configuration while one thread replaces it: stillpoint/rcu.hpp, the <rcu> of C++26.
//
// A reader opens a region, loads the pointer, and uses the configuration: no lock, no count, no registration. The writer exchanges the
// pointer and retires the old configuration, which is deleted when every region that may have seen it is closed.

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "stillpoint/rcu.hpp"

struct configuration : stillpoint::rcu_obj_base<configuration> {
    int version;
    std::string greeting;

    explicit configuration(int number) : version(number), greeting("configuration " + std::to_string(number)) {}
};

static std::atomic<configuration *> current{new configuration(0)};

static long read_it(const std::atomic<bool> &is_over)
{
    long lookups = 0;
    while (!is_over) {
        std::scoped_lock region(stillpoint::rcu_default_domain());
        const configuration *const found = current.load(std::memory_order_acquire);
        if (found->greeting != "configuration " + std::to_string(found->version))
            std::abort(); // it cannot be deleted before the end of the region
        lookups++;
    }
    return lookups;
}

int main()
{
    std::atomic<bool> is_over{false};
    std::atomic<long> lookups{0};
    std::vector<std::thread> readers;
    for (int number = 0; number < 4; number++)
        readers.emplace_back([&] { lookups += read_it(is_over); });

    const int versions = 10000;
    for (int version = 1; version <= versions; version++)
        current.exchange(new configuration(version), std::memory_order_acq_rel)->retire();

    is_over = true;
    for (std::thread &reader : readers)
        reader.join();
    current.exchange(nullptr)->retire();
    stillpoint::rcu_barrier(); // every configuration is deleted
    std::printf("%d configurations, %ld lookups\n", versions, lookups.load());
}
