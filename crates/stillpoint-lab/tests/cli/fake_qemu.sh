#!/bin/sh
# In the place of QEMU: prints on its console what a guest would print; FAKE selects the case.
while [ "$#" -gt 0 ]; do
    case $1 in
        -smp) vcpus=$2 ;;
        -accel) accel=$2 ;;
        -initrd) initrd=$2 ;;
        -device) device=$2 ;;
        -chardev) monitor=${2##*path=} ;;
        -m) memory=$2 ;;
        -kernel) folder=${2%/*} ;;
    esac
    shift
done

say() { printf '@stillpoint %s %s %s\r\n' "$1" "${#2}" "$2"; }
begin() { say begin "{\"kernel\":\"Linux 6.1\",\"vcpus\":$vcpus,\"clock\":\"tsc\",\"peers\":{}}"; }
row() {
    params='{"workload":"'${load:-deletes}'","mode":"'$1'","readers":1,"policy":"poll","elements":256,"rounds":3,"round_s":0.1}'
    metrics='{"gp_us_mean":'$2',"gp_us_max":'$2',"delay_us_mean":'$2',"delay_us_max":'$2',"lookups_per_s":1000}'
    say row '{"experiment":"guest","scenario":"","contender":"'${contender:-stillpoint/protected}'","params":'$params',"metrics":'"$metrics$3"'}'
}
mail() {
    params='{"workload":"mail","mode":"symmetric","readers":1,"policy":"delete","elements":256,"rounds":3,"round_s":0.1}'
    metrics='{"gp_us_mean":20,"gp_us_max":50,"cpu_us_per_gp":'$vcpus',"peak_pending_bytes":'$((vcpus * vcpus * 1024))'}'
    course='[{"second":0.01,"delay_us_max":30.5,"pending_bytes":256},{"second":0.02,"delay_us_max":null,"pending_bytes":1024}]'
    say row '{"experiment":"guest","scenario":"","contender":"stillpoint/protected","params":'$params',"metrics":'$metrics',"course":'$course'}'
}
kernel() {
    params='{"workload":"kernel","mode":"none","readers":2,"policy":"synchronize","grace_periods_by":"kprobes","rounds":3,"round_s":0.1}'
    metrics='{"synchronize_rcu_us_mean":'$((vcpus * 3000))',"synchronize_rcu_us_max":'$((vcpus * 9000))',"calls":70}'
    say row '{"experiment":"guest","scenario":"","contender":"linux/rcu","params":'$params',"metrics":'$metrics'}'
}

echo 'booting'
case $FAKE in
    well)
        begin
        row asymmetric $((vcpus * vcpus * 100))
        row symmetric 10
        mail
        kernel
        say end '{"rows":4,"seconds":1.5}'
        ;;
    neighbour)
        # A neighbour prints only that it has begun, and runs until it is ended.
        begin
        if grep -q Disturb "$initrd"; then exec sleep 1000; fi
        row symmetric $((vcpus * 10))
        say end '{"rows":1,"seconds":1.5}'
        ;;
    balloon)
        # The guest finds its modules, and the monitor what the host asks for.
        begin
        grep -q 'balloon/01-virtio_balloon.ko' "$initrd" || exit 1
        say row '{"experiment":"guest","scenario":"","contender":"'"$device $memory $(cat "$monitor.in")"'","params":{"workload":"balloon"},"metrics":{"yielded_bytes":7}}'
        say end '{"rows":1,"seconds":1.5}'
        ;;
    density)
        # Each guest has a number, and waits for the last one. Those of stillpoint/guard run out of memory: with three guests, the
        # process of a load in the first one; with four, the last one.
        contender=$(gzip -dc "$initrd" | grep -ao '"contenders":\["[^"]*')
        contender=${contender##*\"}
        load=memory
        guests=$((340 / memory))
        number=1
        while ! mkdir "$folder/${initrd##*/}.$number" 2>/dev/null; do number=$((number + 1)); done
        until [ -d "$folder/${initrd##*/}.$guests" ]; do sleep 0.02; done
        case $contender-$guests-$number in
            stillpoint/guard-3-1) killed=',"void":"the kernel does this if memory runs out; ask for less; memory of the guest ran out"' ;;
            stillpoint/guard-4-4)
                echo '[    1.5] Kernel panic - not syncing: System is deadlocked on memory'
                exit 0
                ;;
        esac
        begin
        row asymmetric $((number * 10))
        row symmetric $((number * 20)) "$killed"
        say end '{"rows":2,"seconds":1.5}'
        ;;
    overcommit-panics)
        if [ "$vcpus" -gt 2 ]; then
            echo '[    1.5] Kernel panic - not syncing: No working init found.'
        else
            begin
            row symmetric 10
            say end '{"rows":1,"seconds":1.5}'
        fi
        ;;
    error)
        begin
        say error '"cannot mount proc"'
        ;;
    truncated)
        begin
        row symmetric 10
        ;;
    refused)
        echo 'no such machine' >&2
        exit 1
        ;;
    no-kvm)
        [ "$accel" != kvm ] || exit 134
        begin
        row symmetric 10
        say end '{"rows":1,"seconds":1.5}'
        ;;
    hangs)
        sleep 1000
        ;;
esac
