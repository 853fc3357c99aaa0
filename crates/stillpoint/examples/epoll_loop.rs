//! Event loops that go offline while they wait for events.
//!
//! Each worker has an epoll instance and a QSBR reader: a lookup is a plain load, and the worker reports once per batch
//! of events that it holds nothing any more. Before it waits for events, it goes offline. So a writer waits for busy
//! workers, for as long as a batch takes, and never for idle ones.
//!
//! Run it with `cargo run --example epoll_loop`.

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use stillpoint::rcu::{Domain, RcuCell};

const WORKERS: usize = 2;
const REQUESTS: usize = 200;
const EVENTS: usize = 16;

/// The answer to each request.
struct Greeting {
    text: String,
}

/// Answers requests of one byte each until the other end is closed. Returns their number.
fn work(
    domain: &Domain,
    greeting: &RcuCell<Greeting>,
    mut connection: UnixStream,
    poll: &OwnedFd,
    ready: &Barrier,
) -> io::Result<usize> {
    let mut reader = domain.qsbr_reader();
    let mut events = Vec::with_capacity(EVENTS);
    let (mut answered, mut buffer) = (0, [0; 64]);
    ready.wait();
    loop {
        events.clear();
        // This may wait for any time. Nothing can be loaded meanwhile, because the reader is borrowed.
        match reader.offline(|| epoll::wait(poll, spare_capacity(&mut events), None)) {
            Err(Errno::INTR) => continue,
            waited => _ = waited?,
        }
        for _ in &events {
            match connection.read(&mut buffer) {
                Ok(0) => return Ok(answered),
                Ok(requests) => {
                    // Online again, and up to date. The reference may be kept until the batch is done.
                    let greeting = greeting.load(&reader).expect("there is always one");
                    for _ in 0..requests {
                        match writeln!(connection, "{}", greeting.text) {
                            // A peer that does not read its answers is given up.
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(answered),
                            written => written?,
                        }
                    }
                    answered += requests;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        // Going offline is a quiescent state, so no other one is needed here.
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::builder().name("greetings").build()?;
    let greeting = domain.cell(Greeting { text: "good morning".into() });
    let ready = Barrier::new(WORKERS + 1);
    // All that may fail comes before the threads, which wait for each other.
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..WORKERS {
        let (client, server) = UnixStream::pair()?;
        server.set_nonblocking(true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &server, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        clients.push(client);
        servers.push((server, poll));
    }

    let answered = thread::scope(|scope| -> Result<usize, Box<dyn Error>> {
        let start = |(server, poll)| {
            let (domain, greeting, ready) = (&domain, &greeting, &ready);
            scope.spawn(move || work(domain, greeting, server, &poll, ready))
        };
        let workers: Vec<_> = servers.into_iter().map(start).collect();
        ready.wait();

        // No request has been sent yet, so every worker goes offline, and this waits for none. Otherwise this would hang.
        greeting.replace(Greeting { text: "good day".into() }).expect("there is always one").free()?;

        for request in 0..REQUESTS {
            let client = &mut clients[request % WORKERS];
            client.write_all(b"?")?;
            let mut answer = [0; 9];
            client.read_exact(&mut answer)?;
            assert_eq!(&answer, b"good day\n");
        }
        drop(clients); // the workers read the end of the stream
        workers.into_iter().map(|worker| Ok(worker.join().expect("it does not panic")?)).sum()
    })?;

    println!("{answered} requests answered; {} grace periods", domain.stats().grace_periods);
    assert_eq!((answered, domain.stats().freed), (REQUESTS, 1));
    Ok(())
}
