// A Rust program that calls the kernel itself, as rustix does: locks the file that it is told, says "had", and waits for the end of its input.
use std::arch::asm;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::io::AsRawFd; // std::os::fd is younger than Debian 12

#[cfg(target_arch = "x86_64")]
unsafe fn flock(fd: i32, op: i32) -> isize {
    let ret: isize;
    asm!("syscall", inlateout("rax") 73isize => ret, in("rdi") fd as isize, in("rsi") op as isize, out("rcx") _, out("r11") _);
    ret
}

#[cfg(target_arch = "aarch64")]
unsafe fn flock(fd: i32, op: i32) -> isize {
    let ret: isize;
    asm!("svc 0", in("x8") 32isize, inlateout("x0") fd as isize => ret, in("x1") op as isize);
    ret
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: lock FILE");
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let ret = unsafe { flock(file.as_raw_fd(), 2) };
    assert!(ret == 0, "errno {}", -ret);
    println!("had");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("read");
}
