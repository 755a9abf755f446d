// Takes a lock with rustix, whose system calls are its own (its linux_raw backend): flock or, of versions that have it, record FILE. Says
// "had", or "refused" with the errno, and waits for the end of its input. With `wait` as the third word it waits for the lock.
use rustix::fs::FlockOperation;
use std::fs::OpenOptions;
use std::io::Read;

#[cfg(feature = "record")]
fn record(file: &std::fs::File, how: FlockOperation) -> rustix::io::Result<()> {
    rustix::fs::fcntl_lock(file, how)
}

#[cfg(not(feature = "record"))]
fn record(_: &std::fs::File, _: FlockOperation) -> rustix::io::Result<()> {
    panic!("this rustix has no fcntl_lock()")
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let file = OpenOptions::new().read(true).write(true).open(&words[2]).expect("open");
    let how = if words.len() > 3 { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
    let done = if words[1] == "flock" { rustix::fs::flock(&file, how) } else { record(&file, how) };
    match done {
        Ok(()) => println!("had"),
        Err(e) => println!("refused {}", e.raw_os_error()),
    }
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("read");
}
