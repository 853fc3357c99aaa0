//! Packet buffers: a thread receives into blocks, which a device could fill in one go, and hands single buffers to
//! workers, which free them. So buckets become complete again, and are allocated as blocks once more.

use std::error::Error;
use std::sync::mpsc::{sync_channel, Receiver};

use stillpoint::pool::{Local, Obj, Pool};

const PACKETS: usize = 20_000;
const WORKERS: usize = 2;

/// A buffer in the pool.
#[repr(align(64))]
struct Packet {
    len: usize,
    bytes: [u8; 1500],
}

/// Takes the place of a network card: fills the buffers of a block.
fn receive(block: &mut [Obj<'_, Packet>], received: &mut usize) {
    for packet in block {
        packet.len = 64 + *received % 1400;
        packet.bytes[0] = *received as u8;
        *received += 1;
    }
}

/// Frees processed buffers in bursts, so that objects of one bucket are freed together.
fn work<'p>(local: &Local<'p, Packet>, packets: &Receiver<Obj<'p, Packet>>) -> usize {
    let mut bytes = 0;
    let mut done = Vec::with_capacity(32);
    for packet in packets {
        assert!(packet.len >= 64);
        bytes += packet.len;
        done.push(packet);
        if done.len() == 32 {
            local.free_many(done.drain(..));
        }
    }
    local.free_many(done);
    bytes
}

/// Runs the example. One test runs all files of this folder.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A block needs a whole bucket, and the workers only free: what they kept in caches would be missing there.
    let pool: Pool<Packet> = Pool::builder(2_000, || Packet { len: 0, bytes: [0; 1500] }).cache(0).build()?;
    let info = pool.info();
    println!("blocks of {} packets, {} bytes apart", info.objects_per_block, info.stride);

    let mut received = 0;
    let bytes: usize = std::thread::scope(|scope| {
        let (senders, workers): (Vec<_>, Vec<_>) = (0..WORKERS)
            .map(|_| {
                let (send, packets) = sync_channel(256);
                let pool = &pool;
                let worker = scope.spawn(move || {
                    let local = pool.local().expect("fewer threads than the pool allows");
                    work(&local, &packets)
                });
                (send, worker)
            })
            .unzip();
        let local = pool.local().expect("fewer threads than the pool allows");
        let mut ring = Vec::with_capacity(info.objects_per_block);
        while received < PACKETS {
            // An empty pool drops no packet here: it waits for the workers.
            let Some(block) = local.alloc_block() else {
                std::thread::yield_now();
                continue;
            };
            ring.extend(block);
            receive(&mut ring, &mut received);
            for (number, packet) in ring.drain(..).enumerate() {
                senders[number % WORKERS].send(packet).expect("the workers outlive their channels");
            }
        }
        drop(senders);
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).sum()
    });

    let audit = pool.audit()?;
    assert!(received >= PACKETS && bytes >= 64 * received);
    assert_eq!(audit.stats.in_use, 0, "a packet is missing");
    println!("{received} packets, {bytes} bytes; every buffer is back");
    Ok(())
}
