//! The examples run to their end, and what they assert holds.

#![cfg(not(stillpoint_loom))]

#[path = "../examples/background.rs"]
mod background;
#[path = "../examples/config_snapshot.rs"]
mod config_snapshot;
#[path = "../examples/delay_queue.rs"]
mod delay_queue;
#[path = "../examples/epoll_loop.rs"]
mod epoll_loop;
#[path = "../examples/flow_table_qsbr.rs"]
mod flow_table_qsbr;
#[path = "../examples/packet_buffers.rs"]
mod packet_buffers;
#[cfg(feature = "delay-queue")]
#[path = "../examples/retries.rs"]
mod retries;
#[path = "../examples/sleep.rs"]
mod sleep;
#[path = "../examples/timeouts.rs"]
mod timeouts;
#[path = "../examples/tokio_workers.rs"]
mod tokio_workers;

#[test]
fn config_snapshot_runs() {
    config_snapshot::main().expect("it reports no error");
}

#[test]
fn flow_table_qsbr_runs() {
    flow_table_qsbr::main().expect("it reports no error");
}

#[test]
fn background_runs() {
    background::main().expect("it reports no error");
}

#[test]
fn delay_queue_runs() {
    delay_queue::main().expect("it reports no error");
}

#[test]
fn epoll_loop_runs() {
    epoll_loop::main().expect("it reports no error");
}

#[test]
fn packet_buffers_runs() {
    packet_buffers::main().expect("it reports no error");
}

#[test]
fn tokio_workers_runs() {
    tokio_workers::main().expect("it reports no error");
}

#[test]
fn timeouts_runs() {
    timeouts::main().expect("it reports no error");
}

#[test]
fn sleep_runs() {
    sleep::main().expect("it reports no error");
}

#[cfg(feature = "delay-queue")]
#[test]
fn retries_runs() {
    retries::main().expect("it reports no error");
}
