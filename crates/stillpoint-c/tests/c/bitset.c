/* Sets of small numbers, beside arrays of bytes. */
#include "check.h"

#include "stillpoint/bitset.h"

enum { LARGEST = 200 };

static uint64_t set[STILL_BITSET_WORDS(LARGEST)];
static unsigned char plain[LARGEST];

static size_t find(size_t from, size_t to, int value)
{
    while (from < to && plain[from] != value)
        from++;
    return from < to ? from : to;
}

static size_t wrap(size_t size, size_t from, int value)
{
    size_t found = find(from, size, value);
    if (found == size && from > 0)
        found = find(0, from, value) < from ? find(0, from, value) : size;
    return found;
}

static void same(size_t size, size_t from, size_t to)
{
    size_t count = 0, within = 0;
    for (size_t i = 0; i < size; i++) {
        CHECK(still_bitset_test(set, i) == (plain[i] != 0));
        count += plain[i];
        within += i >= from && i < to ? plain[i] : 0;
    }
    CHECK(still_bitset_count(set, size) == count && still_bitset_count_range(set, from, to) == within);
    for (size_t i = 0; i <= size; i++) {
        CHECK(still_bitset_find(set, size, i) == find(i, size, 1));
        CHECK(still_bitset_find_clear(set, size, i) == find(i, size, 0));
        CHECK(still_bitset_find_wrap(set, size, i) == wrap(size, i, 1));
        CHECK(still_bitset_find_clear_wrap(set, size, i) == wrap(size, i, 0));
    }
    CHECK(still_bitset_find_range(set, from, to) == find(from, to, 1));
    /* Bits beyond the size stay 0. */
    if (size % 64 != 0)
        CHECK(set[size / 64] >> (size % 64) == 0);
}

int main(void)
{
    static const size_t sizes[] = { 1, 5, 63, 64, 65, 127, 128, 129, 200 };
    unsigned int seed = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t size = sizes[s];
        memset(set, 0xff, sizeof set);
        still_bitset_init(set, size);
        memset(plain, 0, sizeof plain);
        same(size, 0, size);
        for (int step = 0; step < 400; step++) {
            seed = seed * 1103515245u + 12345u;
            size_t from = (seed >> 8) % size;
            seed = seed * 1103515245u + 12345u;
            size_t to = from + (seed >> 8) % (size - from + 1);
            switch (step % 7) {
            case 0:
                still_bitset_set(set, from);
                plain[from] = 1;
                break;
            case 1:
                still_bitset_clear(set, from);
                plain[from] = 0;
                break;
            case 2:
                still_bitset_flip(set, from);
                plain[from] ^= 1;
                break;
            case 3:
                still_bitset_assign(set, from, step % 2);
                plain[from] = step % 2 != 0;
                break;
            case 4:
                still_bitset_set_range(set, from, to);
                memset(plain + from, 1, to - from);
                break;
            case 5:
                still_bitset_clear_range(set, from, to);
                memset(plain + from, 0, to - from);
                break;
            default:
                still_bitset_flip_range(set, from, to);
                for (size_t i = from; i < to; i++)
                    plain[i] ^= 1;
            }
            same(size, from, to);
        }
    }
    /* The example of the header. */
    uint64_t ports[STILL_BITSET_WORDS(1024)];
    still_bitset_init(ports, 1024);
    still_bitset_set(ports, 443);
    still_bitset_set(ports, 1023);
    size_t sum = 0;
    for (size_t port = 0; (port = still_bitset_find(ports, 1024, port)) < 1024; port++)
        sum += port;
    CHECK(sum == 443 + 1023);
    return 0;
}
