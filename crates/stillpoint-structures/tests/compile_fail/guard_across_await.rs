use stillpoint::table::Table;

fn spawn(_: impl Send) {}

async fn wait() {}

fn main() {
    let table: Table<u64, String> = Table::new();
    spawn(async move {
        let guard = table.pin();
        #[cfg(not(test))] wait().await;
        guard.get(&1).is_some()
    });
}
