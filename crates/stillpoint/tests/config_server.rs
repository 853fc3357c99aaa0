//! A configuration server: eight threads answer requests by the current configuration, while others change it.
//!
//! Written as a new user writes it: from the README and the documentation only, without `unsafe`.

#![forbid(unsafe_code)]
#![cfg(not(stillpoint_loom))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use stillpoint::rcu::{self, RcuArray, RcuCell};

const SERVERS: usize = if cfg!(miri) { 2 } else { 8 };
const WRITERS: u64 = 2;
const REGIONS: usize = 16;
const CHANGES: u64 = if cfg!(miri) { 10 } else { 10_000 };

/// The number of configurations and routes in memory.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

struct Ticket(Alive);

impl Alive {
    fn ticket(&self) -> Ticket {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ticket(self.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Replaced as a whole: no reader sees the limits of one version with the name of another.
struct Config {
    version: u64,
    name: String,
    limits: Vec<u64>,
    _ticket: Ticket,
}

impl Config {
    fn new(version: u64, alive: &Alive) -> Self {
        let (name, limits) = (format!("version {version}"), vec![10 * version; 64]);
        Self { version, name, limits, _ticket: alive.ticket() }
    }

    fn is_whole(&self) -> bool {
        self.name == format!("version {}", self.version)
            && self.limits.iter().all(|&limit| limit == 10 * self.version)
    }
}

/// Where the requests of a region go. Replaced one by one.
struct Route {
    version: u64,
    upstream: Box<str>,
    _ticket: Ticket,
}

impl Route {
    fn new(region: usize, version: u64, alive: &Alive) -> Self {
        let upstream = format!("{region}.{version}.example").into();
        Self { version, upstream, _ticket: alive.ticket() }
    }
}

struct Server {
    config: RcuCell<Config>,
    routes: RcuArray<Route>,
    alive: Alive,
}

impl Server {
    fn new() -> Self {
        let alive = Alive::default();
        let config = RcuCell::new(Config::new(0, &alive));
        let routes = RcuArray::new(REGIONS, |region| Some(Box::new(Route::new(region, 0, &alive))));
        Self { config, routes, alive }
    }

    /// Two writers at a time: no change is lost.
    fn change_config(&self) {
        self.config.update(|config| Config::new(config.version + 1, &self.alive));
    }

    fn change_route(&self, region: usize, version: u64) {
        self.routes.set(region, Some(Box::new(Route::new(region, version, &self.alive))));
    }

    /// A slow request: it keeps the configuration that it began with, and delays the freeing of no other one.
    fn answer(&self, region: usize) -> (u64, u64) {
        let config = self.config.get().expect("never empty here");
        let route = self.routes.get(region).expect("never empty here");
        thread::yield_now();
        assert!(config.is_whole(), "a torn configuration");
        assert_eq!(*route.upstream, *format!("{region}.{}.example", route.version));
        (config.version, route.version)
    }

    /// Reads everything at once, in a region, where a load costs no more than a plain one.
    fn report(&self) -> u64 {
        let guard = rcu::pin();
        let upstreams = (0..REGIONS).filter_map(|region| self.routes.load(region, &guard));
        assert_eq!(upstreams.filter(|route| route.upstream.ends_with(".example")).count(), REGIONS);
        let config = self.config.load(&guard).expect("never empty here");
        thread::yield_now();
        assert!(config.is_whole(), "a torn configuration");
        config.version
    }
}

#[test]
fn a_configuration_is_never_torn_and_goes_when_nobody_has_it() {
    let server = Server::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..SERVERS {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let (mut newest, mut routes) = (0, [0; REGIONS]);
                let mut request = number;
                while !done.load(Ordering::Relaxed) {
                    let region = request % REGIONS;
                    let (config, route) = server.answer(region);
                    assert!(config >= newest && route >= routes[region], "time does not go back");
                    (newest, routes[region]) = (config, route);
                    if request % 7 == 0 {
                        newest = server.report().max(newest);
                    }
                    request += 1;
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || {
                    for change in 1..=CHANGES {
                        server.change_config();
                        // Each writer has half of the regions.
                        let region = (change * WRITERS + writer) as usize % REGIONS;
                        server.change_route(region, change);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("it does not panic");
        }
        done.store(true, Ordering::Relaxed);
    });

    assert_eq!(
        server.config.get().map(|config| config.version),
        Some(WRITERS * CHANGES),
        "no change is lost"
    );
    rcu::barrier().expect("this thread holds nothing");
    let alive = server.alive.clone();
    assert_eq!(alive.0.load(Ordering::Relaxed), 1 + REGIONS, "what was replaced is freed");
    drop(server);
    assert_eq!(alive.0.load(Ordering::Relaxed), 0);
}
