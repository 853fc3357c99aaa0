//! A service on stillpoint: sessions that expire, a configuration that is reloaded on SIGHUP, a page of metrics, and an end that
//! lets requests finish. `beside.rs` is the same service on other crates.
//!
//! Run it with `cargo run --release --bin service config.json`.

use std::alloc::System;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, serve};
use cap::Cap;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde::Deserialize;
use stillpoint::metrics::Metrics;
use stillpoint::rcu::{self, RcuCell};
use stillpoint::table::Table;
use stillpoint::timer::{Key, delay_queue::DelayQueue};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const MAX_SESSIONS: usize = 100_000;
const MAX_MILLIS: u64 = 60_000;
/// How long requests may take after the end was asked for: longer than the longest of ours.
const LAST_REQUESTS: Duration = Duration::from_millis(MAX_MILLIS + 5_000);

static METRICS: Metrics = Metrics::new();

#[derive(Deserialize)]
struct Config {
    ttl: Duration,
    greeting: String,
    terms: String,
}

/// Texts are boxed, which copies them: a `String` of axum may keep the whole buffer that a request was read into.
struct Session {
    user: Box<str>,
    note: RcuCell<Box<str>>,
    timer: Key,
}

struct App {
    config: RcuCell<Config>,
    sessions: Table<u64, Session>,
    expiry: DelayQueue<u64>,
}

type Answer<T> = Result<T, StatusCode>;

async fn login(State(app): State<Arc<App>>, user: String) -> Answer<String> {
    let (id, ttl) = (rand::random(), app.config.get().expect("never empty").ttl);
    let timer = app.expiry.insert(id, ttl).or(Err(StatusCode::SERVICE_UNAVAILABLE))?;
    let session = Session { user: user.into(), note: RcuCell::new("".into()), timer };
    if app.sessions.insert(id, session).is_err() {
        app.expiry.remove(&timer);
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    if !app.expiry.reset(&timer, ttl) {
        // The timer was due before there was a session to remove.
        _ = app.sessions.remove_if(&id, |_, session| session.timer == timer);
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    Ok(id.to_string())
}

async fn show(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Answer<String> {
    let session = app.sessions.get(&id).ok_or(StatusCode::NOT_FOUND)?;
    let config = app.config.get().expect("never empty");
    app.expiry.reset(&session.timer, config.ttl).then_some(()).ok_or(StatusCode::NOT_FOUND)?;
    let note = session.note.get().expect("never empty");
    Ok(format!("{}, {}: {}", config.greeting, session.user, *note))
}

async fn note(State(app): State<Arc<App>>, Path(id): Path<u64>, note: String) -> Answer<()> {
    let session = app.sessions.get(&id).ok_or(StatusCode::NOT_FOUND)?;
    session.note.set(note.into());
    Ok(())
}

async fn logout(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Answer<()> {
    let session = app.sessions.remove(&id).ok_or(StatusCode::NOT_FOUND)?;
    app.expiry.remove(&session.timer);
    Ok(())
}

/// A handler that takes long, and needs the session and the configuration as they were when it began.
async fn terms(State(app): State<Arc<App>>, Path((id, millis)): Path<(u64, u64)>) -> Answer<String> {
    counter!("slow_requests").increment(1);
    let session = app.sessions.get_owned(&id).ok_or(StatusCode::NOT_FOUND)?;
    let config = app.config.protect_owned().expect("never empty");
    sleep(Duration::from_millis(millis.min(MAX_MILLIS))).await;
    Ok(format!("{}: {}", session.user, config.terms))
}

async fn expire(app: Arc<App>) {
    while let Some(due) = app.expiry.next(|at| sleep_until(at.into())).await {
        _ = app.sessions.remove_if(due.get_ref(), |_, session| session.timer == due.key());
    }
}

fn read_config(path: &str) -> io::Result<Config> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

async fn run(path: String) -> Result<(), Box<dyn Error>> {
    let app = Arc::new(App {
        config: RcuCell::new(read_config(&path)?),
        sessions: Table::new(),
        expiry: DelayQueue::with_max_len(MAX_SESSIONS),
    });

    let page = PrometheusBuilder::new().install_recorder()?;
    METRICS.add("sessions", &app, |app| app.sessions.stats());
    METRICS.add("expiry", &app, |app| app.expiry.stats());
    let render = move || async move {
        METRICS.record();
        gauge!("heap_bytes").set(HEAP.allocated() as f64);
        page.render()
    };

    let (mut reload, mut end) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let configured = Arc::clone(&app);
    tokio::spawn(async move {
        while reload.recv().await.is_some() {
            match read_config(&path) {
                Ok(config) => configured.config.set(config),
                Err(error) => eprintln!("{path}: {error}: the old configuration stays"),
            }
        }
    });
    tokio::spawn(expire(Arc::clone(&app)));

    let router = Router::new()
        .route("/sessions", post(login))
        .route("/sessions/{id}", get(show).put(note).delete(logout))
        .route("/sessions/{id}/terms/{millis}", get(terms))
        .route("/metrics", get(render))
        .with_state(Arc::clone(&app));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let (tell, told) = oneshot::channel();
    let ends = async move {
        _ = end.recv().await;
        _ = tell.send(());
    };
    tokio::select! {
        served = serve(listener, router).with_graceful_shutdown(ends).into_future() => served?,
        // A request of which the peer does not send the rest would keep the service up.
        () = async { _ = told.await; sleep(LAST_REQUESTS).await } => eprintln!("the last requests were cut off"),
    }

    app.expiry.close();
    println!("ended with {} sessions", app.expiry.drain().count());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: service CONFIG")?;
    let offline = || _ = rcu::offline();
    let runtime = Builder::new_multi_thread().enable_all().on_thread_park(offline).build()?;
    runtime.block_on(run(path))?;
    runtime.shutdown_timeout(Duration::from_secs(5)); // its threads have ended, and the tasks that held sessions
    Ok(rcu::barrier_timeout(Duration::from_secs(5))?) // frees what waits
}
