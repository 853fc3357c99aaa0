//! The service of `service.rs` on dashmap, arc-swap and tokio-util's queue of delays.
//!
//! Run it with `cargo run --release --bin beside config.json`.

use std::alloc::System;
use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use std::{env, fs, io};

use arc_swap::ArcSwap;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, serve};
use cap::Cap;
use dashmap::DashMap;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::time::{DelayQueue, delay_queue::Key};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const MAX_SESSIONS: usize = 100_000;
const MAX_MILLIS: u64 = 60_000;

#[derive(Deserialize)]
struct Config {
    ttl: Duration,
    greeting: String,
    terms: String,
}

/// Texts are boxed, which copies them: a `String` of axum may keep the whole buffer that a request was read into.
struct Session {
    user: Box<str>,
    note: Box<str>,
    timer: Key,
}

struct App {
    config: ArcSwap<Config>,
    sessions: DashMap<u64, Session>,
    /// Locked before a session is: so the queue has the timer of each session that is in the map.
    expiry: Mutex<DelayQueue<u64>>,
}

type Answer<T> = Result<T, StatusCode>;

async fn login(State(app): State<Arc<App>>, user: String) -> Answer<String> {
    let id = rand::random();
    let mut expiry = app.expiry.lock().unwrap();
    if expiry.len() == MAX_SESSIONS {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let timer = expiry.insert(id, app.config.load().ttl);
    app.sessions.insert(id, Session { user: user.into(), note: "".into(), timer });
    Ok(id.to_string())
}

async fn show(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Answer<String> {
    let config = app.config.load();
    let mut expiry = app.expiry.lock().unwrap();
    let session = app.sessions.get(&id).ok_or(StatusCode::NOT_FOUND)?;
    expiry.reset(&session.timer, config.ttl);
    drop(expiry);
    Ok(format!("{}, {}: {}", config.greeting, session.user, session.note))
}

async fn note(State(app): State<Arc<App>>, Path(id): Path<u64>, note: String) -> Answer<()> {
    let mut session = app.sessions.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
    session.note = note.into();
    Ok(())
}

async fn logout(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Answer<()> {
    let mut expiry = app.expiry.lock().unwrap();
    let (_, session) = app.sessions.remove(&id).ok_or(StatusCode::NOT_FOUND)?;
    expiry.remove(&session.timer);
    Ok(())
}

/// A handler that takes long, and needs the session and the configuration as they were when it began.
async fn terms(State(app): State<Arc<App>>, Path((id, millis)): Path<(u64, u64)>) -> Answer<String> {
    counter!("slow_requests").increment(1);
    let user = app.sessions.get(&id).ok_or(StatusCode::NOT_FOUND)?.user.clone();
    let config = app.config.load_full();
    sleep(Duration::from_millis(millis.min(MAX_MILLIS))).await;
    Ok(format!("{}: {}", user, config.terms))
}

async fn expire(app: Arc<App>) {
    poll_fn(|context| {
        let mut expiry = app.expiry.lock().unwrap();
        while let Poll::Ready(Some(due)) = expiry.poll_expired(context) {
            app.sessions.remove(due.get_ref());
        }
        Poll::Pending // an insertion wakes the task
    })
    .await
}

fn read_config(path: &str) -> io::Result<Config> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: beside CONFIG")?;
    let app = Arc::new(App {
        config: ArcSwap::from_pointee(read_config(&path)?),
        sessions: DashMap::new(),
        expiry: Mutex::new(DelayQueue::new()),
    });

    let page = PrometheusBuilder::new().install_recorder()?;
    let measured = Arc::clone(&app);
    let render = move || async move {
        gauge!("sessions").set(measured.sessions.len() as f64);
        gauge!("timers").set(measured.expiry.lock().unwrap().len() as f64);
        gauge!("heap_bytes").set(HEAP.allocated() as f64);
        page.render()
    };

    let (mut reload, mut end) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let configured = Arc::clone(&app);
    tokio::spawn(async move {
        while reload.recv().await.is_some() {
            match read_config(&path) {
                Ok(config) => configured.config.store(Arc::new(config)),
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
    serve(listener, router).with_graceful_shutdown(async move { _ = end.recv().await }).await?;

    println!("ended with {} sessions", app.sessions.len());
    Ok(())
}
