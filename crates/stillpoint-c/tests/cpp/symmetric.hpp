// Included before a test. The process must not use membarrier(2), so readers issue full fences.
#ifndef SYMMETRIC_HPP
#define SYMMETRIC_HPP

#include "../c/filter.h"

__attribute__((constructor(101))) static void refuse_from_the_start()
{
    refuse_membarrier();
}

#endif
