// Several threads use a stack with hazard pointers and a list with rcu. If an object is read after its end, a check fails.
// With -fsanitize=address, any use after a free ends the program.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

#ifndef ROUNDS
#define ROUNDS 20000
#endif
static constexpr int THREADS = 4;

namespace {

/// Runs a function on several threads, each with its number.
template <class F>
void together(F function)
{
    std::vector<std::thread> threads;
    for (int number = 0; number < THREADS; number++)
        threads.emplace_back([=, &function] { function(number); });
    for (std::thread &thread : threads)
        thread.join();
}

// With hazard pointers: pop protects the head, and reads its successor while it is protected.
class hazard_stack {
    struct node : sp::hazard_pointer_obj_base<node>, Witness {
        node *next = nullptr;
        int value;
        explicit node(int number) : value(number) {}
    };
    std::atomic<node *> head{nullptr};

public:
    void push(int value)
    {
        node *const made = new node(value);
        made->next = head.load(std::memory_order_relaxed);
        while (!head.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
        }
    }

    bool pop(sp::hazard_pointer &hazard, int &value)
    {
        for (;;) {
            node *found = hazard.protect(head);
            if (found == nullptr)
                return false;
            node *const next = found->next;
            CHECK(found->there());
            if (head.compare_exchange_strong(found, next, std::memory_order_acq_rel, std::memory_order_relaxed)) {
                value = found->value;
                hazard.reset_protection();
                found->retire();
                return true;
            }
        }
    }

    int top(sp::hazard_pointer &hazard)
    {
        const node *const found = hazard.protect(head);
        if (found == nullptr)
            return 0;
        CHECK(found->there());
        return found->value;
    }
};

void stacks_by_hazard_pointers()
{
    hazard_stack stack;
    std::atomic<long> pushed{0}, popped{0};
    together([&](int number) {
        sp::hazard_pointer hazard = sp::make_hazard_pointer(), other = sp::make_hazard_pointer();
        for (int round = 1; round <= ROUNDS; round++) {
            stack.push(round);
            pushed += round;
            stack.top(other);
            int value = 0;
            if (stack.pop(hazard, value))
                popped += value;
            if (round % 64 == number)
                swap(hazard, other);
            if (round % 256 == number)
                other = sp::make_hazard_pointer();
        }
    });
    sp::hazard_pointer hazard = sp::make_hazard_pointer();
    for (int value = 0; stack.pop(hazard, value);)
        popped += value;
    CHECK(pushed == popped);
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0);
}

// With rcu: a sorted list that readers walk while one writer at a time changes it.
class rcu_list {
    struct node : sp::rcu_obj_base<node>, Witness {
        std::atomic<node *> next{nullptr};
        int value;
        explicit node(int number) : value(number) {}
    };
    std::atomic<node *> head{nullptr};
    std::mutex writers;

public:
    int sum()
    {
        std::scoped_lock region(sp::rcu_default_domain());
        int sum = 0, last = -1;
        for (const node *found = head.load(std::memory_order_acquire); found != nullptr;
             found = found->next.load(std::memory_order_acquire)) {
            CHECK(found->there() && found->value > last);
            last = found->value;
            sum += last;
        }
        return sum;
    }

    /// Removes the value if it is in the list, and inserts it otherwise.
    void toggle(int value, bool by_function)
    {
        std::scoped_lock own(writers);
        std::atomic<node *> *link = &head;
        node *found;
        while ((found = link->load(std::memory_order_relaxed)) != nullptr && found->value < value)
            link = &found->next;
        if (found != nullptr && found->value == value) {
            link->store(found->next.load(std::memory_order_relaxed), std::memory_order_release);
            if (by_function)
                sp::rcu_retire(found);
            else
                found->retire();
        } else {
            node *const made = new node(value);
            made->next.store(found, std::memory_order_relaxed);
            link->store(made, std::memory_order_release);
        }
    }

    void clear()
    {
        for (node *found = head.exchange(nullptr); found != nullptr;) {
            node *const next = found->next;
            found->retire();
            found = next;
        }
    }
};

void lists_by_rcu()
{
    rcu_list list;
    together([&](int number) {
        for (int round = 0; round < ROUNDS / 4; round++) {
            list.toggle((round * 7 + number * 13) % 32, round % 2 == 0);
            list.sum();
            std::scoped_lock outer(sp::rcu_default_domain());
            list.sum();
            if (round % 1024 == 0) {
                sp::rcu_default_domain().unlock();
                sp::rcu_synchronize();
                sp::rcu_default_domain().lock();
            }
        }
    });
    list.clear();
    sp::rcu_barrier();
    CHECK(alive == 0);
}

} // namespace

int main()
{
    stacks_by_hazard_pointers();
    lists_by_rcu();
}
