// A Go program: locks the file that it is told, says "had", and waits for the end of its input. With a second word it takes a record
// lock. Many goroutines work meanwhile, so the runtime sends its threads signals.
package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

func main() {
	for i := 0; i < 4; i++ {
		go func() {
			for n := 0; ; n++ {
			}
		}()
	}
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err == nil && len(os.Args) > 2 {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: syscall.F_WRLCK})
	} else if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("had")
	io.Copy(io.Discard, os.Stdin)
}
