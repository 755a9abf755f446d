// calls WHAT FILE BLOCKS BLOCK_US: calls.c in Go, which makes its system calls itself.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func check(what string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func setRecord(fd int, kind int16) {
	check("fcntl", syscall.FcntlFlock(uintptr(fd), syscall.F_SETLK, &syscall.Flock_t{Type: kind, Len: 1}))
}

var calls = map[string]func(fd int){
	"flock-pair": func(fd int) {
		check("flock", syscall.Flock(fd, syscall.LOCK_EX))
		check("flock", syscall.Flock(fd, syscall.LOCK_UN))
	},
	"fcntl-pair": func(fd int) {
		setRecord(fd, syscall.F_WRLCK)
		setRecord(fd, syscall.F_UNLCK)
	},
}

func block(call func(fd int), fd, count int) time.Duration {
	from := time.Now()
	for i := 0; i < count; i++ {
		call(fd)
	}
	return time.Since(from)
}

func main() {
	fd, err := syscall.Open(os.Args[2], syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0600)
	check(os.Args[2], err)
	blocks, err := strconv.Atoi(os.Args[3])
	check("BLOCKS", err)
	us, err := strconv.Atoi(os.Args[4])
	check("BLOCK_US", err)
	call, count := calls[os.Args[1]], 1
	call(fd)
	for block(call, fd, count) < time.Duration(us)*time.Microsecond {
		count *= 2
	}
	samples := make([]float64, blocks)
	for i := range samples {
		samples[i] = float64(block(call, fd, count)) / float64(count)
	}
	for _, ns := range samples {
		fmt.Printf("%.1f\n", ns)
	}
}
