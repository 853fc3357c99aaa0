// The requirements of [saferecl.hp] on behaviour.

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"

namespace sp = stillpoint;
using sp::hazard_pointer;

namespace {

struct object : sp::hazard_pointer_obj_base<object>, Witness {};

/// Whether this object, which was retired, has been reclaimed after a clean-up.
bool is_reclaimed(int before)
{
    sp::hazard_pointer_clean_up();
    return alive == before - 1;
}

uint64_t owned()
{
    return stats(sp::hazard_pointer_domain_handle()).holds;
}

// hp.ctor, hp.empty, hp.make: empty by default; not empty from make_hazard_pointer.
void an_owner_owns_or_is_empty()
{
    const uint64_t before = owned();
    const hazard_pointer none;
    CHECK(none.empty() && owned() == before);
    {
        hazard_pointer made = sp::make_hazard_pointer();
        CHECK(!made.empty() && owned() == before + 1);
    }
    CHECK(owned() == before); // hp.dtor
}

// hp.move, hp.assign: a move transfers ownership and empties the source; an assignment destroys what was owned; a self-assignment does nothing.
void ownership_moves()
{
    const uint64_t before = owned();
    hazard_pointer first = sp::make_hazard_pointer();
    hazard_pointer second(std::move(first));
    CHECK(first.empty() && !second.empty() && owned() == before + 1);
    hazard_pointer third(std::move(first));
    CHECK(third.empty());
    third = std::move(second);
    CHECK(second.empty() && !third.empty() && owned() == before + 1);
    second = sp::make_hazard_pointer();
    CHECK(owned() == before + 2);
    CHECK(&(third = std::move(second)) == &third);
    CHECK(owned() == before + 1 && second.empty() && !third.empty());
    hazard_pointer &self = third;
    third = std::move(self);
    CHECK(!third.empty() && owned() == before + 1);
    third = std::move(first); // first is empty
    CHECK(third.empty() && owned() == before);
}

// hp.gen.protected, hp.protect, hp.reset.null, hp.dtor: a protected object is not reclaimed before its epoch ends.
void what_is_protected_stays()
{
    hazard_pointer hazard = sp::make_hazard_pointer();
    for (int way = 0; way < 6; way++) {
        std::atomic<object *> link{new object};
        object *const found = hazard.protect(link);
        CHECK(found == link);
        link.store(nullptr);
        found->retire();
        CHECK(!is_reclaimed(1) && found->there());
        switch (way) {
        case 0:
            hazard.reset_protection();
            break;
        case 1:
            hazard.reset_protection(nullptr);
            break;
        case 2:
            hazard.reset_protection(static_cast<const object *>(nullptr)); // hp.reset.null_pointer
            break;
        case 3:
            CHECK(hazard.protect(link) == nullptr); // hp.protect.null
            break;
        case 4: {
            object other; // another association ends the previous epoch
            hazard.reset_protection(&other);
            CHECK(is_reclaimed(2));
            hazard.reset_protection();
            break;
        }
        default:
            hazard = hazard_pointer();
        }
        CHECK(alive == 0 || is_reclaimed(1));
    }
}

// hp.try_protect: compares, and returns the pointer that it finds; after a failure nothing is protected.
void a_try_says_what_is_there()
{
    hazard_pointer hazard = sp::make_hazard_pointer();
    object *const first = new object, *const second = new object;
    std::atomic<object *> link{first};
    object *seen = second;
    CHECK(!hazard.try_protect(seen, link) && seen == first);
    second->retire();
    CHECK(is_reclaimed(2)); // it is not protected
    CHECK(hazard.try_protect(seen, link) && seen == first);
    link.store(nullptr);
    first->retire();
    CHECK(!is_reclaimed(1));
    object *const old = seen;
    CHECK(!hazard.try_protect(seen, link) && seen == nullptr); // the link has changed
    CHECK(is_reclaimed(1));
    CHECK(hazard.try_protect(seen, link) && seen == nullptr); // null is equal to null
    static_cast<void>(old);
}

// hp.reset: an association without a load; the caller knows that the object is not retired.
void a_known_object_is_protected()
{
    hazard_pointer hazard = sp::make_hazard_pointer();
    object *const found = new object;
    hazard.reset_protection(found);
    std::thread([found] { found->retire(); }).join(); // the beginning of the epoch happens before
    CHECK(!is_reclaimed(1) && found->there());
    hazard.reset_protection(found); // another epoch of the same object
    CHECK(!is_reclaimed(1));
    hazard.reset_protection();
    CHECK(is_reclaimed(1));
}

// hp.swap, hp.swap.free: hazard pointers stay with their objects while their owners are swapped.
void a_swap_ends_nothing()
{
    hazard_pointer first = sp::make_hazard_pointer(), second = sp::make_hazard_pointer(), none;
    object *const a = new object, *const b = new object;
    std::atomic<object *> to_a{a}, to_b{b};
    first.protect(to_a);
    second.protect(to_b);
    first.swap(second);
    swap(first, none);
    CHECK(first.empty() && !none.empty() && !second.empty());
    a->retire();
    b->retire();
    CHECK(!is_reclaimed(2) && alive == 2);
    none.reset_protection(); // the hazard pointer of b
    CHECK(is_reclaimed(2) && a->there());
    second.reset_protection();
    CHECK(is_reclaimed(1));
    second.swap(second);
    CHECK(!second.empty());
}

// hp.gen.owner: at most one thread at a time owns a hazard pointer. One thread makes it, moves it to another while it protects, and ends.
void it_outlives_the_thread_that_made_it()
{
    object *const found = new object;
    std::atomic<object *> link{found};
    hazard_pointer hazard;
    std::thread([&] {
        hazard_pointer own = sp::make_hazard_pointer();
        CHECK(own.protect(link) == found);
        hazard = std::move(own);
    }).join();
    link.store(nullptr);
    found->retire();
    CHECK(!is_reclaimed(1));
    std::thread([moved = std::move(hazard), found]() mutable {
        CHECK(found->there() && !is_reclaimed(1));
        hazard_pointer other = sp::make_hazard_pointer();
        swap(moved, other);
        CHECK(!is_reclaimed(1) && found->there());
    }).join();
    CHECK(is_reclaimed(1));
}

// hp.base.retire, hp.base.address: d is move-assigned to the deleter, which gets the whole object, once.
struct counted {
    int *calls = nullptr;
    std::unique_ptr<int> state;

    template <class T>
    void operator()(T *found) const;
};

struct at_front {
    virtual ~at_front() = default;
    long before = 1;
};

struct in_the_middle : at_front, sp::hazard_pointer_obj_base<in_the_middle, counted>, Witness {
    long after = 2;
};

template <class T>
void counted::operator()(T *found) const
{
    CHECK(found->before == 1 && found->after == 2 && *state == 5);
    ++*calls;
    delete found;
    CHECK(*state == 5);
}

void the_deleter_gets_the_object()
{
    int calls = 0;
    in_the_middle *const found = new in_the_middle;
    std::atomic<in_the_middle *> link{found};
    hazard_pointer hazard = sp::make_hazard_pointer();
    CHECK(hazard.protect(link) == found);
    found->retire(counted{&calls, std::make_unique<int>(5)});
    CHECK(!is_reclaimed(1) && calls == 0); // the address that was protected is the one that was retired
    hazard.reset_protection();
    CHECK(is_reclaimed(1) && calls == 1);
}

// hp.base.deleter: a deleter needs only default construction and move assignment.
struct least {
    least() = default;
    least(const least &) = delete;
    least &operator=(least &&) = default;
    template <class T>
    void operator()(T *found) const
    {
        delete found;
    }
};

struct by_least : sp::hazard_pointer_obj_base<by_least, least>, Witness {};

// hp.gen.reclaim: every unprotected object is reclaimed by its own deleter, while others are held.
void others_are_reclaimed_meanwhile()
{
    hazard_pointer hazard = sp::make_hazard_pointer();
    object *const held = new object;
    hazard.reset_protection(held);
    held->retire();
    for (int turn = 0; turn < 1000; turn++) {
        (new object)->retire();
        (new by_least)->retire();
    }
    sp::hazard_pointer_clean_up();
    CHECK(alive == 1 && held->there());
    hazard.reset_protection();
    while (alive != 0) // the library reclaims the objects without a clean-up
        sched_yield();
}

// hp.base.retire.may: deleters may make hazard pointers, protect and retire, and take locks that are held across retire.
void deleters_use_hazard_pointers()
{
    static std::mutex mutex;
    static std::atomic<int> depth;
    depth = 0;
    struct again : sp::hazard_pointer_obj_base<again>, Witness {
        ~again()
        {
            const std::scoped_lock inside(mutex);
            std::atomic<object *> link{new object};
            hazard_pointer hazard = sp::make_hazard_pointer();
            hazard.protect(link)->retire();
            if (++depth < 5)
                (new again)->retire();
        }
    };
    {
        const std::scoped_lock held(mutex);
        (new again)->retire();
    }
    while (depth < 5 || alive != 0)
        sched_yield();
}

// hp.many: any number of hazard pointers, each with its object; free ones are used again.
void there_is_no_limit()
{
    const uint64_t before = owned();
    std::vector<hazard_pointer> all;
    std::vector<object *> objects;
    for (int turn = 0; turn < 1000; turn++) {
        all.push_back(sp::make_hazard_pointer());
        objects.push_back(new object);
        all.back().reset_protection(objects.back());
    }
    CHECK(owned() == before + 1000);
    for (object *found : objects)
        found->retire();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 1000);
    for (size_t turn = 0; turn < 1000; turn += 2)
        all[turn] = hazard_pointer();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 500);
    for (size_t turn = 1; turn < 1000; turn += 2)
        CHECK(objects[turn]->there());
    all.clear();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0 && owned() == before);
}

// Beyond the standard: heavy fences are issued only while a hazard pointer is owned, by any thread.
void fences_are_issued_for_owners()
{
    if (syscall(SYS_membarrier, 0, 0) < 0)
        return; // owners issue full fences here
    const auto fences = [] {
        const uint64_t before = stats(sp::hazard_pointer_domain_handle()).heavy_fences;
        (new object)->retire();
        sp::hazard_pointer_clean_up();
        CHECK(alive == 0);
        return stats(sp::hazard_pointer_domain_handle()).heavy_fences - before;
    };
    CHECK(owned() == 0 && fences() == 0);
    hazard_pointer hazard;
    std::thread([&] { hazard = sp::make_hazard_pointer(); }).join();
    CHECK(fences() > 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        CHECK(fences() > 0);
        hazard = hazard_pointer();
        CHECK(fences() == 0);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    hazard = hazard_pointer();
    CHECK(fences() == 0);
}

// Beyond the standard: a child of fork keeps the objects that other threads protected, and reclaims the rest.
void a_child_goes_on()
{
    hazard_pointer hazard = sp::make_hazard_pointer();
    object *const held = new object;
    Gate is_held, may_go;
    std::thread other([&] {
        hazard_pointer own = sp::make_hazard_pointer();
        object *const found = new object;
        own.reset_protection(found);
        found->retire();
        is_held.open();
        may_go.pass();
    });
    is_held.pass();
    hazard.reset_protection(held);
    held->retire();
    (new object)->retire();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        sp::hazard_pointer_clean_up();
        CHECK(alive == 2 && held->there());
        hazard = hazard_pointer();
        sp::hazard_pointer_clean_up();
        CHECK(alive == 1);
        (new object)->retire();
        while (alive != 1)
            sched_yield();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(held->there());
    may_go.open();
    other.join();
    hazard.reset_protection();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0);
}

hazard_pointer until_the_end;

struct AtExit {
    ~AtExit()
    {
        hazard_pointer hazard = sp::make_hazard_pointer();
        std::atomic<object *> link{new object};
        hazard.protect(link)->retire();
        hazard.reset_protection();
        sp::hazard_pointer_clean_up();
        CHECK(alive == 0);
    }
} at_exit;

} // namespace

int main()
{
    an_owner_owns_or_is_empty();
    ownership_moves();
    what_is_protected_stays();
    a_try_says_what_is_there();
    a_known_object_is_protected();
    a_swap_ends_nothing();
    it_outlives_the_thread_that_made_it();
    the_deleter_gets_the_object();
    others_are_reclaimed_meanwhile();
    deleters_use_hazard_pointers();
    there_is_no_limit();
    fences_are_issued_for_owners();
    a_child_goes_on();
    thread_local hazard_pointer of_thread = sp::make_hazard_pointer();
    until_the_end = sp::make_hazard_pointer();
}
