// Programs that must not compile. Each value of CASE selects one.

#include <atomic>

#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

struct rcu_own : sp::rcu_obj_base<rcu_own> {};
struct rcu_further : rcu_own {};
struct rcu_wrong : sp::rcu_obj_base<rcu_own> {};
struct hazard_own : sp::hazard_pointer_obj_base<hazard_own> {};
struct hazard_wrong : sp::hazard_pointer_obj_base<hazard_own> {};
struct plain {};

template <class T>
struct stays {
    stays() = default;
    stays(const stays &) = delete;
    stays &operator=(const stays &) = default;
    void operator()(T *) const {}
};

int main()
{
    std::atomic<hazard_own *> own{nullptr};
    std::atomic<plain *> other{nullptr};
    hazard_own *found = nullptr;
    plain *wrong = nullptr;
    sp::hazard_pointer hazard = sp::make_hazard_pointer();
#if CASE == 0 // compiles
    (new rcu_own)->retire();
    sp::rcu_retire(new plain);
    hazard.try_protect(found, own);
#elif CASE == 1 // rcu.base.mandates: must have one base
    struct twice : sp::rcu_obj_base<twice>, rcu_own {} object;
    static_cast<sp::rcu_obj_base<twice> &>(object).retire();
#elif CASE == 2 // rcu.retire.mandates: must be move-constructible
    sp::rcu_retire<plain, stays<plain>>(new plain, {});
#elif CASE == 3 // rcu.retire.mandates: must be well-formed
    sp::rcu_retire(new plain, [](int *) {});
#elif CASE == 4 // hp.base.mandates: must have one base
    struct twice : sp::hazard_pointer_obj_base<twice>, hazard_own {} object;
    static_cast<sp::hazard_pointer_obj_base<twice> &>(object).retire();
#elif CASE == 5 // hp.try_protect.mandates: must have one base
    hazard.try_protect(wrong, other);
#elif CASE == 6 // hp.protect: must have one base
    hazard.protect(other);
#elif CASE == 7 // hp.reset.mandates: must have one base
    hazard.reset_protection(wrong);
#elif CASE == 8 // hp.class.synopsis: copy
    sp::hazard_pointer copy = hazard;
#elif CASE == 9 // rcu.domain.synopsis: private
    sp::rcu_domain domain(0);
#elif CASE == 10 // rcu.base.mandates: must have one base
    struct hidden : private sp::rcu_obj_base<hidden> {
        void end() { this->retire(); }
    } object;
    object.end();
#endif
    static_cast<void>(found);
    static_cast<void>(wrong);
}
