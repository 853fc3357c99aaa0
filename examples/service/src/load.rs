//! The client of both programs: checks what they answer, loads them in turns, and prints how fast they were and what waited.
//!
//! `run` builds and starts it.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep, timeout};

type Failure = Box<dyn Error + Send + Sync>;
type Result<T = ()> = std::result::Result<T, Failure>;

const CONNECTIONS: usize = 16;
const SESSIONS_OF_EACH: usize = 64;
/// Of the text in the configuration: what a reload replaces, and what the long request keeps.
const TERMS: usize = 256 << 10;
const LONG: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is a program's turn, how long it is loaded, and how often it reloads.
struct Plan {
    rounds: usize,
    load: Duration,
    reload: Duration,
}

/// A program that runs, with its configuration.
struct Service {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// That a file was no configuration.
    refused: UnboundedReceiver<String>,
    address: SocketAddr,
    config: PathBuf,
    version: u64,
}

impl Service {
    async fn start(program: &Path) -> Result<Self> {
        let config = env::temp_dir().join(format!("service-{}.json", std::process::id()));
        write_config(&config, 0, LONG)?;
        let mut child = Command::new(program)
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut errors = BufReader::new(child.stderr.take().ok_or("no errors")?).lines();
        let (refuse, refused) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = errors.next_line().await {
                if line.ends_with("the old configuration stays") {
                    drop(refuse.send(line));
                } else {
                    eprintln!("{line}");
                }
            }
        });
        let line = lines.next_line().await?.ok_or("the program ended at once")?;
        let address = line.strip_prefix("listening on ").ok_or(line.clone())?.parse()?;
        Ok(Self { child, lines, refused, address, config, version: 0 })
    }

    /// The memory of the process.
    fn resident_kib(&self) -> Result<f64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id().ok_or("the program has ended")?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim_end_matches("kB").trim().parse()?)
    }

    fn signal(&self, signal: Signal) -> Result {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(kill_process(id.ok_or("the program has ended")?, signal)?)
    }

    /// Gives it the next version of its configuration.
    fn reload(&mut self, ttl: Duration) -> Result {
        self.version += 1;
        write_config(&self.config, self.version, ttl)?;
        self.signal(Signal::HUP)
    }

    /// Reloads, and waits until the program has read the file.
    async fn reload_and_see(&mut self, client: &mut Client, ttl: Duration) -> Result {
        self.reload(ttl)?;
        let greeting = format!("Hello {},", self.version);
        eventually("the new configuration", async || {
            let id = client.login("a user").await?;
            let text = client.show(&id).await?;
            client.logout(&id).await?; // it may have expired
            Ok(text.is_some_and(|text| text.starts_with(&greeting)))
        })
        .await
    }

    /// Ends it. Returns what it has printed at its end.
    async fn end(mut self) -> Result<(ExitStatus, String)> {
        let mut text = String::new();
        while let Some(line) = self.lines.next_line().await? {
            text += &line;
        }
        let status = self.child.wait().await?;
        fs::remove_file(&self.config)?;
        Ok((status, text))
    }
}

fn terms(version: u64) -> String {
    format!("{version}{}", " ".repeat(TERMS))
}

/// By a new file: the program never reads half of one.
fn write_config(path: &Path, version: u64, ttl: Duration) -> Result {
    let text = json!({ "ttl": ttl, "greeting": format!("Hello {version}"), "terms": terms(version) });
    let new = path.with_extension("new");
    fs::write(&new, text.to_string())?;
    Ok(fs::rename(new, path)?)
}

async fn eventually(what: &str, mut happened: impl AsyncFnMut() -> Result<bool>) -> Result {
    timeout(PATIENCE, async {
        while !happened().await? {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    })
    .await
    .map_err(|_| format!("{what}: not within {PATIENCE:?}"))?
}

struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn call(&mut self, method: Method, path: &str, body: String) -> Result<(StatusCode, String)> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        self.0.ready().await?;
        let answer = self.0.send_request(request.body(Full::from(body))?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.into())?))
    }

    /// The text of an answer, or `None` if there is no such session.
    async fn found(&mut self, method: Method, path: &str, body: &str) -> Result<Option<String>> {
        match self.call(method, path, body.to_owned()).await? {
            (StatusCode::OK, text) => Ok(Some(text)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, text) => Err(format!("{path}: {status} {text}").into()),
        }
    }

    async fn login(&mut self, user: &str) -> Result<String> {
        Ok(self.found(Method::POST, "/sessions", user).await?.ok_or("no place for sessions")?)
    }

    async fn show(&mut self, id: &str) -> Result<Option<String>> {
        self.found(Method::GET, &format!("/sessions/{id}"), "").await
    }

    async fn note(&mut self, id: &str, note: &str) -> Result<Option<String>> {
        self.found(Method::PUT, &format!("/sessions/{id}"), note).await
    }

    async fn logout(&mut self, id: &str) -> Result<Option<String>> {
        self.found(Method::DELETE, &format!("/sessions/{id}"), "").await
    }

    async fn terms(&mut self, id: &str, hold: Duration) -> Result<Option<String>> {
        self.found(Method::GET, &format!("/sessions/{id}/terms/{}", hold.as_millis()), "").await
    }

    /// The numbers of these metrics, each summed over its labels; 0 if the program does not have it.
    async fn metrics<const N: usize>(&mut self, names: [&str; N]) -> Result<[f64; N]> {
        let page = self.found(Method::GET, "/metrics", "").await?.ok_or("no page of metrics")?;
        let mut sums = [0.0; N];
        for (name, sum) in names.iter().zip(&mut sums) {
            let is_it =
                |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
            let numbers = page.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next());
            *sum = numbers.map(|number| Ok(number.parse::<f64>()?)).sum::<Result<f64>>()?;
        }
        Ok(sums)
    }
}

fn check(holds: bool, what: impl Into<Failure>) -> Result {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// What both programs must do.
async fn check_answers(service: &mut Service) -> Result {
    let mut client = Client::connect(service.address).await?;
    let (ada, eve) = (client.login("Ada").await?, client.login("Eve").await?);
    check(ada != eve, "two sessions have one name")?;
    client.note(&ada, "first").await?;
    client.note(&ada, "second").await?;
    let text = client.show(&ada).await?;
    check(text.as_deref() == Some("Hello 0, Ada: second"), format!("not Ada's session: {text:?}"))?;

    client.logout(&eve).await?.ok_or("Eve's session is gone")?;
    for nobody in [&eve, "7"] {
        check(client.show(nobody).await?.is_none(), "a session that nobody has is shown")?;
        check(client.note(nobody, "").await?.is_none(), "a session that nobody has is changed")?;
        check(client.terms(nobody, LONG).await?.is_none(), "a session that nobody has has terms")?;
        check(client.logout(nobody).await?.is_none(), "a session that nobody has is ended")?;
    }

    // Half a configuration changes nothing, and a whole one is taken after it.
    fs::write(&service.config, "{")?;
    service.signal(Signal::HUP)?;
    service.refused.recv().await.ok_or("the program has ended")?;
    service.reload_and_see(&mut client, Duration::from_millis(20)).await?;
    // Showing a session begins the time that is configured now.
    client.show(&ada).await?;
    let of_either = ["sessions", "stillpoint_table_entries"];
    eventually("the end of a session", async || Ok(client.metrics(of_either).await? == [0.0; 2])).await?;
    check(client.show(&ada).await?.is_none(), "a session is shown after its end")?;
    service.reload_and_see(&mut client, LONG).await
}

/// What a program did under load.
#[derive(Clone, Copy)]
struct Measured {
    requests_per_second: f64,
    p99_us: f64,
    /// How much more memory was in use, at most, than before the load.
    memory_kib: f64,
    /// Memory of the process, at most.
    resident_kib: f64,
    /// Objects that waited to be freed, at most.
    waiting: f64,
}

/// A connection with its sessions, and how long its requests have taken, in nanoseconds.
struct User {
    client: Client,
    ids: Vec<String>,
    times: Histogram<u64>,
}

impl User {
    async fn new(address: SocketAddr) -> Result<Self> {
        let (mut client, mut ids) = (Client::connect(address).await?, Vec::new());
        for _ in 0..SESSIONS_OF_EACH {
            ids.push(client.login("a user").await?);
        }
        Ok(Self { client, ids, times: Histogram::new(3)? })
    }

    /// Nine in ten requests show a session; the others change, end or make one.
    async fn load(mut self, until: Instant) -> Result<Self> {
        self.times.reset();
        while Instant::now() < until {
            let (which, kind) = (rand::random_range(0..self.ids.len()), rand::random_range(0..40));
            let (id, begin) = (&mut self.ids[which], Instant::now());
            let answer = match kind {
                0 | 1 => self.client.note(id, "something to remember").await?,
                2 => self.client.logout(id).await?,
                _ => self.client.show(id).await?,
            };
            self.times.record(begin.elapsed().as_nanos().try_into()?)?;
            answer.ok_or("a session is gone")?;
            if kind == 2 {
                let begin = Instant::now();
                *id = self.client.login("a user").await?;
                self.times.record(begin.elapsed().as_nanos().try_into()?)?;
            }
        }
        Ok(self)
    }
}

fn load(users: impl IntoIterator<Item = User>, time: Duration) -> JoinSet<Result<User>> {
    let until = Instant::now() + time;
    users.into_iter().map(|user| user.load(until)).collect()
}

/// Has the terms of a session read, slowly. Returns when the request has begun, with a task that ends with it.
async fn begin_slow(service: &Service, client: &mut Client, hold: Duration) -> Result<JoinHandle<Result>> {
    let (id, [begun]) = (client.login("slow").await?, client.metrics(["slow_requests"]).await?);
    let (mut own, version) = (Client::connect(service.address).await?, service.version);
    let task = tokio::spawn(async move {
        let text = own.terms(&id, hold).await?.ok_or("the slow request has found no session")?;
        check(text == format!("slow: {}", terms(version)), "the slow request has not kept what it began with")
    });
    eventually("the slow request", async || Ok(client.metrics(["slow_requests"]).await? > [begun])).await?;
    Ok(task)
}

/// Loads a program that runs, reloads it meanwhile, and ends it. One request keeps what it began with all the time.
async fn measure(mut service: Service, plan: &Plan) -> Result<Measured> {
    let mut client = Client::connect(service.address).await?;
    let mut users = Vec::new();
    for _ in 0..CONNECTIONS {
        users.push(User::new(service.address).await?);
    }
    // The buffers of the connections get their sizes now.
    let users = load(users, plan.load / 10).join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let [before] = client.metrics(["heap_bytes"]).await?;

    let held = begin_slow(&service, &mut client, plan.load).await?;
    let begin = Instant::now();
    let users = load(users, plan.load);
    let (mut memory, mut resident, mut waiting) = (0_f64, 0_f64, 0_f64);
    let mut ticks = interval(plan.reload);
    while begin.elapsed() < plan.load {
        ticks.tick().await;
        service.reload(LONG)?;
        let [heap, pending] = client.metrics(["heap_bytes", "stillpoint_domain_pending"]).await?;
        (memory, waiting) = (memory.max(heap - before), waiting.max(pending));
        resident = resident.max(service.resident_kib()?);
    }
    let users = users.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let seconds = begin.elapsed().as_secs_f64();
    let mut times = Histogram::<u64>::new(3)?;
    for user in users {
        times.add(user.times)?;
    }
    held.await??;

    // The end lets a request finish that has begun.
    service.reload_and_see(&mut client, LONG).await?;
    let slow = begin_slow(&service, &mut client, Duration::from_millis(300)).await?;
    service.signal(Signal::TERM)?;
    slow.await??;
    let (status, text) = service.end().await?;
    let expected = format!("ended with {} sessions", CONNECTIONS * SESSIONS_OF_EACH + 2);
    check(status.success() && text == expected, format!("{status}: {text:?}, not {expected:?}"))?;

    Ok(Measured {
        requests_per_second: times.len() as f64 / seconds,
        p99_us: times.value_at_quantile(0.99) as f64 / 1e3,
        memory_kib: memory / 1024.0,
        resident_kib: resident,
        waiting,
    })
}

fn median(of: &[Measured], number: fn(&Measured) -> f64) -> f64 {
    let mut numbers: Vec<_> = of.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    (numbers[(numbers.len() - 1) / 2] + numbers[numbers.len() / 2]) / 2.0
}

#[tokio::main]
async fn main() -> Result {
    let reload = Duration::from_millis(20);
    let is_quick = env::args().len() > 1;
    let plan = match env::args().nth(1).as_deref() {
        None => Plan { rounds: 5, load: Duration::from_secs(10), reload },
        Some("quick") => Plan { rounds: 1, load: Duration::from_secs(2), reload },
        Some(_) => return Err("usage: load [quick]".into()),
    };
    let folder = env::current_exe()?.with_file_name("");
    // The service twice: how much these two differ is the noise.
    let programs = ["service", "beside", "service"];
    let mut measured = [(); 3].map(|()| Vec::new());
    for _ in 0..plan.rounds {
        for (program, measured) in programs.iter().zip(&mut measured) {
            let of_program = |failure: Failure| format!("{program}: {failure}");
            let run = async {
                let mut service = Service::start(&folder.join(program)).await?;
                check_answers(&mut service).await?;
                measure(service, &plan).await
            };
            let run =
                timeout(plan.load + 3 * PATIENCE, run).await.map_err(|_| of_program("it hangs".into()))?;
            measured.push(run.map_err(of_program)?);
        }
    }

    println!("{:34}{:>10}{:>10}{:>10}", "", "service", "beside", "control");
    type Row = (&'static str, fn(&Measured) -> f64);
    let rows: [Row; 5] = [
        ("requests a second", |of| of.requests_per_second),
        ("99 of 100 requests within (µs)", |of| of.p99_us),
        ("memory beyond that before (KiB)", |of| of.memory_kib),
        ("resident memory, at most (KiB)", |of| of.resident_kib),
        ("objects that waited, at most", |of| of.waiting),
    ];
    for (name, number) in rows {
        let [service, beside, control] = measured.each_ref().map(|of| median(of, number));
        println!("{name:34}{service:10.0}{beside:10.0}{control:10.0}");
    }
    // A request holds one text, and a reload makes two copies. What was replaced in `quick`, 25 MiB, must be seen on a busy machine, too.
    let of_service = [&measured[0][..], &measured[2]].concat();
    let (waited, bound) =
        (median(&of_service, |of| of.memory_kib), if is_quick { 8 << 10 } else { 1 << 10 } + TERMS / 1024);
    check(waited <= bound as f64, format!("{waited:.0} KiB waited, more than {bound} KiB"))
}
