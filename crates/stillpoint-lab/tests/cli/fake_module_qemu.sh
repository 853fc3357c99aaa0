#!/bin/sh
# In the place of QEMU: prints on its console what the test program of the module would print; FAKE selects the case.
while [ "$#" -gt 0 ]; do
    case $1 in
        -smp) vcpus=$2 ;;
        -append) append=$2 ;;
    esac
    shift
done

say() { printf '@module %s\r\n' "$*"; }

echo 'booting'
case $FAKE in
    well)
        say "begin 6.1.0, $vcpus CPUs"
        say "pass counters: with ${append##*-- }"
        say 'skip liburcu: it was not built'
        say 'rate tree 0 0 4000 2.000'
        say 'rate tree 10 20 3000 2.000'
        say 'rate tree 1000 500 100 2.000'
        say 'end 1 passed, 0 failed, 1 skipped, 3 rates'
        ;;
    violation)
        say "begin 6.1.0, $vcpus CPUs"
        say 'pass counters: 14 operations'
        say 'fail litmus: tree: 3 violations in 100000 entries'
        say 'end 1 passed, 1 failed, 0 skipped, 0 rates'
        ;;
    breaks-off)
        say "begin 6.1.0, $vcpus CPUs"
        say 'pass counters: 14 operations'
        echo '[    1.5] Kernel panic - not syncing: Fatal exception in interrupt'
        ;;
    hangs)
        say "begin 6.1.0, $vcpus CPUs"
        exec sleep 1000
        ;;
esac
